#include "tests/support/sim_device/streams.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <array>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/support/sim_device/sim_device.h"

namespace cohort::sim {
namespace {

constexpr c10::StreamId kPoolStreams = 8;

struct DeviceStreams {
  std::mutex mutex;
  std::vector<std::unique_ptr<Queue>> queues;  // by stream id
  c10::StreamId next_of_pool = 0;
  c10::StreamId next_new = kPoolStreams + 1;
};

thread_local c10::DeviceIndex this_device = 0;
thread_local std::array<c10::StreamId, kMaxDevices> this_streams{};

// Never destroyed: the streams' threads outlive main().
DeviceStreams& streams_of(c10::DeviceIndex device) {
  static auto* const all = new std::array<DeviceStreams, kMaxDevices>;
  check_device(device);
  return (*all)[static_cast<size_t>(device)];
}

c10::Stream make_stream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, {type(), device}, id);
}

c10::StreamId& this_stream(c10::DeviceIndex device) {
  check_device(device);
  return this_streams.at(static_cast<size_t>(device));
}

}  // namespace

c10::DeviceIndex current_device() { return this_device; }

void set_current_device(c10::DeviceIndex device) { this_device = device; }

void check_device(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < num_devices(), "there is no simulated device ", static_cast<int>(device),
              "; there are ", num_devices());
}

c10::Stream default_stream(c10::DeviceIndex device) {
  check_device(device);
  return make_stream(device, 0);
}

c10::Stream stream_of_pool(c10::DeviceIndex device) {
  auto& streams = streams_of(device);
  const std::lock_guard lock(streams.mutex);
  return make_stream(device, 1 + streams.next_of_pool++ % kPoolStreams);
}

c10::Stream new_stream(c10::DeviceIndex device) {
  if (is_real()) return c10::impl::VirtualGuardImpl(type()).getNewStream(sim::device(device));
  auto& streams = streams_of(device);
  const std::lock_guard lock(streams.mutex);
  return make_stream(device, streams.next_new++);
}

c10::Stream current_stream(c10::DeviceIndex device) {
  if (is_real()) return c10::impl::VirtualGuardImpl(type()).getStream(sim::device(device));
  return make_stream(device, this_stream(device));
}

c10::Stream exchange_stream(const c10::Stream& stream) {
  const auto device = stream.device_index();
  return make_stream(device, std::exchange(this_stream(device), stream.id()));
}

Queue& queue_of(const c10::Stream& stream) {
  if (is_real()) {
    static auto* const empty = new Queue(stream);
    return *empty;
  }
  auto& streams = streams_of(stream.device_index());
  const std::lock_guard lock(streams.mutex);
  const auto index = static_cast<size_t>(stream.id());
  if (streams.queues.size() <= index) streams.queues.resize(index + 1);
  auto& queue = streams.queues[index];
  if (!queue) queue = std::make_unique<Queue>(stream);
  return *queue;
}

Queue& current_queue(c10::DeviceIndex device) { return queue_of(current_stream(device)); }

std::vector<Queue*> all_queues() {
  std::vector<Queue*> result;
  for (int device = 0; device < num_devices(); ++device) {
    auto& streams = streams_of(static_cast<c10::DeviceIndex>(device));
    const std::lock_guard lock(streams.mutex);
    for (const auto& queue : streams.queues) {
      if (queue) result.push_back(queue.get());
    }
  }
  return result;
}

}  // namespace cohort::sim
