// torchcohort._C: libcohort.so for Python. Every function that may wait releases the interpreter's lock.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/backend/background_threads.h"
#include "cohort/comm/backend/host_program.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/comm/group/join_backend.h"
#include "cohort/comm/memory/apply_shared_allocator.h"
#include "cohort/comm/memory/shared_allocator.h"
#include "cohort/comm/process/share_memory.h"
#include "cohort/comm/process/tensor_channel.h"
#include "cohort/comm/report/flight_recorder.h"
#include "cohort/comm/report/worker_server.h"

namespace {

using torch::wrap_pybind_function;
using torch::wrap_pybind_function_no_gil;

unsigned long main_thread = 0;

// Only Python's main thread runs signal handlers. Their exception, usually KeyboardInterrupt, ends the operation.
std::exception_ptr check_signals() {
  if (PyThread_get_thread_ident() != main_thread) return nullptr;
  const py::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() == 0) return nullptr;
  return std::make_exception_ptr(py::error_already_set());
}

void find_main_thread() {
  main_thread = py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
}

c10::intrusive_ptr<c10d::Backend> create_backend(const std::string& name,
                                                 const c10d::DistributedBackendOptions& options) {
  return cohort::comm::join_backend(
      {.backend = name,
       .store = options.store,
       .rank = options.group_rank,
       .world_size = options.group_size,
       .timeout = std::chrono::round<std::chrono::milliseconds>(options.timeout),
       .group_name = options.group_id,
       .global_ranks = {options.global_ranks_in_group.begin(), options.global_ranks_in_group.end()}});
}

at::Tensor shm_empty(const std::vector<int64_t>& size, at::ScalarType dtype, const cohort::Group& group) {
  return cohort::comm::shm_empty(size, at::TensorOptions().dtype(dtype), group);
}

// Converts seconds, Python's unit, to milliseconds; at most ten years.
std::chrono::milliseconds to_milliseconds(double seconds) {
  constexpr double kYears = 3.15e8;
  return std::chrono::milliseconds(static_cast<int64_t>(std::clamp(seconds, 0.0, kYears) * 1000));
}

cohort::comm::TensorChannel connect(const std::string& name, double timeout) {
  return cohort::comm::TensorChannel::connect(name, to_milliseconds(timeout));
}

cohort::comm::TensorChannel accept(cohort::comm::TensorListener& listener, std::optional<double> timeout) {
  return listener.accept(timeout ? std::optional(to_milliseconds(*timeout)) : std::nullopt);
}

void define_channels(py::module_& module) {
  using cohort::comm::TensorChannel;
  using cohort::comm::TensorListener;
  py::class_<TensorChannel>(module, "TensorChannel",
                            "One end of a connection that sends tensors to another process without a copy.")
      .def_static("make_pair", wrap_pybind_function(TensorChannel::make_pair))
      .def_static("connect", wrap_pybind_function_no_gil(connect), py::arg("name"), py::arg("timeout") = 30.0)
      .def("send", wrap_pybind_function_no_gil(&TensorChannel::send), py::arg("tensor"))
      .def("receive", wrap_pybind_function_no_gil(&TensorChannel::receive))
      .def("poll", wrap_pybind_function_no_gil([](TensorChannel& channel, double timeout) {
             return channel.poll(to_milliseconds(timeout));
           }),
           py::arg("timeout") = 0.0)
      .def("close", wrap_pybind_function(&TensorChannel::close))
      .def_property_readonly("peer_pid", &TensorChannel::peer_pid);
  py::class_<TensorListener>(module, "TensorListener", "Waits for processes that connect a TensorChannel to its name.")
      .def(py::init(wrap_pybind_function([](const std::string& name) { return TensorListener(name); })),
           py::arg("name"))
      .def("accept", wrap_pybind_function_no_gil(accept), py::arg("timeout") = py::none());
}

std::map<std::string, size_t> shared_allocator_stats() {
  const auto stats = cohort::comm::shared_allocator_stats();
  return {{"reserved_bytes", stats.reserved_bytes},
          {"used_bytes", stats.used_bytes},
          {"peak_used_bytes", stats.peak_used_bytes},
          {"cached_bytes", stats.cached_bytes},
          {"quarantined_bytes", stats.quarantined_bytes},
          {"num_recycled", stats.num_recycled},
          {"num_fresh", stats.num_fresh},
          {"num_refused", stats.num_refused}};
}

void define_allocator(py::module_& module) {
  module.def("apply_shared_allocator", wrap_pybind_function(cohort::comm::apply_shared_allocator),
             py::arg("is_wanted"));
  module.def("use_shared_allocator", wrap_pybind_function([](std::optional<size_t> reserved_bytes) {
               cohort::comm::use_shared_allocator({.reserved_bytes = reserved_bytes});
             }),
             py::arg("reserved_bytes") = py::none());
  module.def("has_shared_allocator", wrap_pybind_function(cohort::comm::has_shared_allocator));
  module.def("empty_shared_allocator_cache", wrap_pybind_function_no_gil(cohort::comm::empty_shared_allocator_cache));
  module.def("shared_allocator_stats", wrap_pybind_function(shared_allocator_stats));
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  // Imports the module with Python's classes Store, Backend and ProcessGroup.
  py::module_::import("torch._C._distributed_c10d");
  module.doc() = "The C++ part of torchcohort.";
  cohort::comm::register_worker_handlers();
  module.def("joinable_backends", wrap_pybind_function(cohort::comm::joinable_backends));
  module.def("create_backend", wrap_pybind_function_no_gil(create_backend), py::arg("name"), py::arg("options"));
  module.def("complete_operations", wrap_pybind_function_no_gil(cohort::comm::complete_background_operations));
  module.def("warn_of_unawaited", wrap_pybind_function_no_gil(cohort::comm::warn_of_unawaited_in_joined));
  module.def("end_background_threads", wrap_pybind_function_no_gil(cohort::comm::end_background_threads));
  module.def("shm_empty", wrap_pybind_function_no_gil(shm_empty), py::arg("size"), py::arg("dtype"), py::arg("group"));
  module.def("has_shared_memory", wrap_pybind_function_no_gil(cohort::comm::has_shared_memory), py::arg("group"));
  module.def("shm_memory_allocated", wrap_pybind_function(cohort::comm::shm_memory_allocated));
  module.def("dump_flight_recorder", wrap_pybind_function_no_gil(cohort::comm::dump_flight_recorder));
  module.def("dump_flight_recorder_text", wrap_pybind_function_no_gil(cohort::comm::dump_flight_recorder_text));
  module.def("write_flight_recorder", wrap_pybind_function_no_gil(cohort::comm::save_flight_recorder),
             py::arg("prefix") = "");
  module.def("write_chrome_trace", wrap_pybind_function_no_gil(cohort::comm::save_chrome_trace), py::arg("path"));
  module.def("share_memory",
             wrap_pybind_function_no_gil([](const std::vector<at::Tensor>& tensors) { cohort::share_memory(tensors); }),
             py::arg("tensors"));
  define_channels(module);
  define_allocator(module);
  find_main_thread();
  cohort::comm::set_interruption(check_signals);
  cohort::comm::set_host_lock({[]() -> void* { return PyGILState_Check() ? PyEval_SaveThread() : nullptr; },
                               [](void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); }});
}
