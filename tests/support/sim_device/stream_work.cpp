#include "tests/support/sim_device/stream_work.h"

#include <c10/core/StreamGuard.h>

#include "tests/support/sim_device/sim_device.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {

StreamWork::StreamWork(const c10::Stream& stream, std::vector<at::Tensor> outputs)
    : stream_(stream),
      end_(type()),
      outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::vector<c10::Device>{stream.device()})) {
  end_.record(stream_);
  const c10::StreamGuard guard(stream_);
  future_->markCompleted(c10::IValue(outputs_));
}

bool StreamWork::wait(std::chrono::milliseconds) {
  synchronize();
  return true;
}

void StreamWork::synchronize() { end_.block(current_stream(stream_.device_index())); }

}  // namespace cohort::sim
