// send, recv, recv from any source.
#include <ATen/ATen.h>

#include "tests/conformance/suite.h"

namespace cohort::test {
namespace {

using Tensors = std::vector<at::Tensor>;

// Around the ring, two messages at once, received in the other order than they are sent.
void ring_case(Suite& suite, const Axes& axes) {
  const int next = (suite.rank + 1) % suite.size;
  const int previous = (suite.rank + suite.size - 1) % suite.size;
  Tensors first{place(values(axes.dtype, axes.count, suite.rank, 1), axes.layout).tensor};
  Tensors second{place(values(axes.dtype, axes.count, suite.rank, 2), axes.layout).tensor};
  const auto first_output = place_output(axes.dtype, axes.count, axes.layout);
  const auto second_output = place_output(axes.dtype, axes.count, axes.layout);
  Tensors first_received{first_output.tensor};
  Tensors second_received{second_output.tensor};
  const std::vector<c10::intrusive_ptr<c10d::Work>> works{
      suite.backend.recv(second_received, previous, 2), suite.backend.send(first, next, 1),
      suite.backend.send(second, next, 2), suite.backend.recv(first_received, previous, 1)};
  for (const auto& work : works) suite.finish(work, Waiting::kWait);
  expect_placed(first_output, values(axes.dtype, axes.count, previous, 1), "first message");
  expect_placed(second_output, values(axes.dtype, axes.count, previous, 2), "second message");
}

// The last rank takes one message from every other, whoever comes first.
void any_source_case(Suite& suite, const Axes& axes) {
  const int taker = suite.size - 1;
  if (suite.rank != taker) {
    Tensors tensors{place(values(axes.dtype, axes.count, suite.rank), axes.layout).tensor};
    suite.finish(suite.backend.send(tensors, taker, 7), Waiting::kWait);
    return;
  }
  std::vector<bool> has_sent(suite.size, false);
  for (int i = 0; i < suite.size - 1; ++i) {
    const auto output = place_output(axes.dtype, axes.count, axes.layout);
    Tensors tensors{output.tensor};
    const auto work = suite.backend.recvAnysource(tensors, 7);
    suite.finish(work, Waiting::kWait);
    const int source = work->sourceRank();
    TORCH_CHECK(source >= 0 && source < taker && !has_sent[source], "wrong source rank ", source);
    has_sent[source] = true;
    expect_placed(output, values(axes.dtype, axes.count, source), "message from " + std::to_string(source));
  }
}

}  // namespace

void run_point_to_point_cases(Suite& suite) {
  if (suite.size == 1) return;
  const auto run = [&](const Axes& axes) {
    suite.run_case("send_recv", axes, "", [&] { ring_case(suite, axes); });
    // Alone in its turn, or a fast rank's message of the next case would be taken in this one.
    const bool is_empty = axes.count == 0;
    suite.run_case(is_empty ? "recv_any_source of nothing" : "recv_any_source", axes, "",
                   [&] { any_source_case(suite, axes); });
    if (suite.wants("recv_any_source")) suite.finish(suite.backend.barrier({}), Waiting::kWait);
  };
  suite.for_each_axes(run);
  suite.for_each_large(run);
}

}  // namespace cohort::test
