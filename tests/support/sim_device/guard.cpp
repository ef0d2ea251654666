#include "tests/support/sim_device/guard.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "tests/support/sim_device/memory.h"
#include "tests/support/sim_device/sim_device.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

struct Event {
  Mark mark;
  std::shared_ptr<std::atomic<double>> milliseconds;  // when it was reached, of events that keep times
};

Event& event_at(void* pointer) { return *static_cast<Event*>(pointer); }

double milliseconds_now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Who asks again and again gets there.
bool is_reached(const Mark& mark) {
  if (mark.queue->is_done(mark.number)) return true;
  mark.queue->demand(mark.number);
  return false;
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return sim::type(); }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return device(current_device()); }
  void setDevice(c10::Device device) const override {
    if (!device.has_index()) return;
    check_device(device.index());
    set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) set_current_device(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(num_devices()); }

  c10::Stream getStream(c10::Device device) const override { return current_stream(index_of(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override { return default_stream(index_of(device)); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return stream_of_pool(index_of(device));
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return new_stream(index_of(device)); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  bool queryStream(const c10::Stream& stream) const override { return is_reached(end_of(queue_of(stream))); }
  void synchronizeStream(const c10::Stream& stream) const override { queue_of(stream).wait_for_all(); }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    for (auto* queue : all_queues()) {
      if (queue->stream().device_index() == device) queue->wait_for_all();
    }
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_use(data, queue_of(stream));
  }

  void record(void** slot, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device index ", static_cast<int>(device),
                " does not match recording stream's device index ", static_cast<int>(stream.device_index()), ".");
    if (!*slot) *slot = new Event;
    auto& event = event_at(*slot);
    auto& queue = queue_of(stream);
    if (flag == c10::EventFlag::BACKEND_DEFAULT) {
      event.milliseconds = std::make_shared<std::atomic<double>>(0);
      queue.push([time = event.milliseconds] { *time = milliseconds_now(); });
    }
    event.mark = end_of(queue);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) wait_in(queue_of(stream), event_at(event).mark);
  }
  bool queryEvent(void* event) const override { return !event || is_reached(event_at(event).mark); }
  void synchronizeEvent(void* event) const override {
    if (event) event_at(event).mark.queue->wait(event_at(event).mark.number);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    TORCH_CHECK(first && second && event_at(first).milliseconds && event_at(second).milliseconds,
                "Both events must be recorded, with timing enabled, before calculating elapsed time.");
    TORCH_CHECK(queryEvent(first) && queryEvent(second),
                "Both events must be completed before calculating elapsed time.");
    return *event_at(second).milliseconds - *event_at(first).milliseconds;
  }

 private:
  static c10::DeviceIndex index_of(c10::Device device) {
    return device.has_index() ? device.index() : current_device();
  }
};

}  // namespace

void register_guard() { c10::impl::registerDeviceGuard(type(), new Guard); }

}  // namespace cohort::sim
