#include "cohort/comm/collectives/object_collectives.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/comm/group/subgroups.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using c10::IValue;
using test::error_of;
using test::run_workers;

std::string text_of(int rank, size_t scale) { return std::string(1 + rank * scale, static_cast<char>('a' + rank)); }

COHORT_WORKER(objects_of_all_sizes) {
  init_process_group("gloo");
  const int rank = get_rank();
  const int size = get_world_size();
  for (const size_t scale : {0, 1, 100, 100000}) {
    BytesList everyone(size + 1, "untouched");
    all_gather_object(everyone, text_of(rank, scale));
    for (int r = 0; r < size; ++r) REQUIRE(everyone[r] == text_of(r, scale));
    REQUIRE(everyone[size] == "untouched");

    for (int root = 0; root < size; ++root) {
      BytesList gathered(rank == root ? size : 0);
      gather_object(text_of(rank, scale), &gathered, root);
      for (int r = 0; r < static_cast<int>(gathered.size()); ++r) REQUIRE(gathered[r] == text_of(r, scale));

      ObjectList list(3);
      if (rank == root) list = {IValue(root), IValue(text_of(root, scale)), IValue()};
      broadcast_object_list(list, root, {.device = at::kCPU});
      REQUIRE(list[0].toInt() == root);
      REQUIRE(list[1].toStringRef() == text_of(root, scale));
      REQUIRE(list[2].isNone());

      BytesList inputs;
      for (int r = 0; r < size; ++r) inputs.push_back(text_of(r, scale));
      BytesList output{"", "untouched"};
      scatter_object_list(output, rank == root ? &inputs : nullptr, root);
      REQUIRE(output[0] == text_of(rank, scale));
      REQUIRE(output[1] == "untouched");
    }
  }
  destroy_process_group();
}

TEST(ObjectCollectives, CarryObjectsOfAllSizes) {
  for (const int world_size : {1, 2, 3}) {
    run_workers("objects_of_all_sizes", {.world_size = world_size}).expect_success();
  }
}

COHORT_WORKER(objects_between_two) {
  init_process_group("gloo");
  for (const bool use_batch : {false, true}) {
    ObjectList list(2);
    const ObjectOptions options{.use_batch = use_batch};
    if (get_rank() == 0) {
      send_object_list(ObjectList{IValue(5), comm::bytes_value("b")}, 1, options);
    } else {
      REQUIRE(recv_object_list(list, 0, options) == 0);
      REQUIRE(list[0].toInt() == 5 && comm::bytes_of(list[1]) == "b");
    }
  }
  if (get_rank() > 0) {
    send_object_list(BytesList{std::to_string(get_rank()), std::string(get_rank() * 1000, 'x')}, 0);
  } else {
    std::vector<bool> seen(get_world_size());
    for (int i = 1; i < get_world_size(); ++i) {
      BytesList list(2);
      const int sender = recv_object_list(list);
      REQUIRE(!seen[sender]);
      seen[sender] = true;
      REQUIRE(list[0] == std::to_string(sender) && list[1].size() == sender * 1000u);
    }
  }
  destroy_process_group();
}

TEST(ObjectCollectives, SendAndReceiveFromOneOrAnyRank) {
  run_workers("objects_between_two", {.world_size = 2}).expect_success();
}

COHORT_WORKER(objects_in_a_subgroup) {
  init_process_group("gloo");
  const auto group = new_group({1, 2});
  const ObjectOptions options{.group = group};
  ObjectList list(2, IValue("mine"));
  all_gather_object(list, IValue(get_rank()), options);
  gather_object(IValue(get_rank()), get_rank() == 2 ? &list : nullptr, 2, options);
  broadcast_object_list(list, group_rank(1), options);
  scatter_object_list(list, &list, 1, options);
  if (get_rank() == 0) {
    REQUIRE(list[0].toStringRef() == "mine" && list[1].toStringRef() == "mine");
    send_object_list(list, 1, options);
    REQUIRE(recv_object_list(list, 1, options) == -1);
  } else {
    REQUIRE(list[0].toInt() == get_rank() && list[1].toInt() == 2);
    if (get_rank() == 1) send_object_list(list, 2, options);
    if (get_rank() == 2) REQUIRE(recv_object_list(list, std::nullopt, options) == 1);
  }
  barrier();  // rank 0 hosts the store, which the others still use
  destroy_process_group();
}

TEST(ObjectCollectives, SubgroupsCountRanksOfTheWorld) {
  run_workers("objects_in_a_subgroup", {.world_size = 3}).expect_success();
}

COHORT_WORKER(object_arguments) {
  init_process_group("gloo");
  const int rank = get_rank();
  ObjectList empty;
  ObjectList one(1);
  ObjectList two(2);
  REQUIRE_EQUAL(error_of([&] { all_gather_object(one, IValue(1)); }),
                "[cohort] all_gather_object needs room for one object per rank in object_list, 2, got 1");
  REQUIRE_EQUAL(error_of([&] { gather_object(IValue(1), rank == 0 ? nullptr : &two, 0); }),
                rank == 0 ? "Argument ``gather_list`` must be specified on destination rank."
                          : "Argument ``gather_list`` must NOT be specified on non-destination ranks.");
  REQUIRE_EQUAL(error_of([&] { gather_object(IValue(1), &one, rank); }),
                "[cohort] gather_object needs room for one object per rank in object_gather_list, 2, got 1");
  REQUIRE_EQUAL(error_of([&] { broadcast_object_list(empty); }),
                "[cohort] broadcast_object_list needs at least one object, got an empty list");
  REQUIRE_EQUAL(error_of([&] { broadcast_object_list(one, 2); }),
                "Rank 2 is out of range. Valid ranks are 0 to 1 (world_size=2)");
  REQUIRE_EQUAL(error_of([&] { scatter_object_list(empty, &two); }),
                "Expected argument scatter_object_output_list to be a list of size at least 1.");
  REQUIRE_EQUAL(error_of([&] { scatter_object_list(one, nullptr, rank); }),
                "source rank must provide non-None scatter_object_input_list");
  REQUIRE_EQUAL(error_of([&] { scatter_object_list(one, &one, rank); }),
                "[cohort] scatter_object_list needs one object per rank in input_list, 2, got 1");
  REQUIRE_EQUAL(
      error_of([&] { send_object_list(one, rank); }),
      "Invalid destination rank: destination rank should not be the same as the rank of the current process.");
  REQUIRE_EQUAL(error_of([&] { recv_object_list(one, rank); }),
                "Invalid source rank: source rank should not be the same as the rank of the current process.");
  REQUIRE_EQUAL(error_of([&] { recv_object_list(one, std::nullopt, {.use_batch = true}); }),
                "[cohort] recv_object_list with use_batch needs src");
  barrier();
  destroy_process_group();
}

TEST(ObjectCollectives, WrongArgumentsMessage) { run_workers("object_arguments").expect_success(); }

COHORT_WORKER(objects_that_cannot_be_read) {
  init_process_group("gloo");
  if (get_rank() == 0) {
    send_object_list(ObjectList{IValue(1), IValue("text")}, 1);
    send(at::tensor({int64_t{-5}, int64_t{7}}), 1);
    send(at::tensor({int64_t{2}}), 1);
    send(at::tensor({70, 46}, at::kByte), 1);
  } else {
    BytesList bytes(2);
    REQUIRE_EQUAL(error_of([&] { recv_object_list(bytes, 0); }),
                  "[cohort] object 0 of rank 0: expected bytes, got a value of type Int; receive it as c10::IValue");
    ObjectList list(2);
    REQUIRE_EQUAL(
        error_of([&] { recv_object_list(list, 0); }),
        "[cohort] the object sizes received are [-5, 7]; all ranks must call the same object collective with lists of "
        "the same length");
    list.resize(1);
    REQUIRE_EQUAL(error_of([&] { recv_object_list(list, 0); }),
                  "[cohort] object 0 of rank 0: cannot unpickle: a line has no end (byte 0 of 2)");
  }
  // Each rank's room is as large as the largest object: all together would be more than there can be.
  if (get_rank() == 0) {
    const auto sizes = at::zeros({2}, at::kLong);
    all_gather(sizes.split(1), at::full({1}, int64_t{1} << 62, at::kLong));
  } else {
    ObjectList list(2);
    const std::string text = error_of([&] { all_gather_object(list, IValue(7)); });
    REQUIRE(text.starts_with("[cohort] the object sizes received are [4611686018427387904, "));
    REQUIRE(text.ends_with("]; all ranks must call the same object collective with lists of the same length"));
  }
  barrier();
  destroy_process_group();
}

TEST(ObjectCollectives, UnreadableObjectsNameTheSenderMessage) {
  run_workers("objects_that_cannot_be_read").expect_success();
}

}  // namespace
}  // namespace cohort
