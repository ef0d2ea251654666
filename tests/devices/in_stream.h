/// InStream: what follows runs in another stream, after what the current one holds; and what follows its end, after that.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tests/support/sim_device/sim_device.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {

class InStream {
 public:
  explicit InStream(const c10::Stream& stream)
      : before_(c10::impl::VirtualGuardImpl(type()).getStream(stream.device())), stream_(stream) {
    hop(before_, stream_);
  }
  ~InStream() { hop(stream_, before_); }
  InStream(const InStream&) = delete;
  InStream& operator=(const InStream&) = delete;

 private:
  static void hop(const c10::Stream& from, const c10::Stream& to) {
    c10::Event event(type());
    event.record(from);
    event.block(to);
    c10::impl::VirtualGuardImpl(type()).exchangeStream(to);
  }

  c10::Stream before_, stream_;
};

/// A new stream whose work begins when somebody waits for it, whatever the schedule.
inline c10::Stream latest_stream(c10::Device device) {
  const auto stream = new_stream(device.index());
  queue_of(stream).make_late();
  return stream;
}

}  // namespace cohort::sim
