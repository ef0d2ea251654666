/// The streams of the simulated devices, and which of them is current in the calling thread.
#pragma once

#include <c10/core/Stream.h>

#include <vector>

#include "tests/support/sim_device/queue.h"

namespace cohort::sim {

/// Where each thread begins, and the streams of a device: number 0 is the default one, then a pool as LibTorch's CUDA has, which
/// hands out the same ones again, then those made by request.
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex device);
/// Throws c10::Error for a device that is not there.
void check_device(c10::DeviceIndex device);

c10::Stream default_stream(c10::DeviceIndex device);
c10::Stream stream_of_pool(c10::DeviceIndex device);
/// These two of a real device, too.
c10::Stream new_stream(c10::DeviceIndex device);
c10::Stream current_stream(c10::DeviceIndex device);
/// Makes it current on its device and returns the one before.
c10::Stream exchange_stream(const c10::Stream& stream);

/// Of a real stream one that stands for it and is always empty.
Queue& queue_of(const c10::Stream& stream);
Queue& current_queue(c10::DeviceIndex device);
std::vector<Queue*> all_queues();

}  // namespace cohort::sim
