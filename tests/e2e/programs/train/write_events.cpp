// write_events FOLDER WHAT: event files for tests/e2e/train/tensorboard_test.py, with the values that it writes in Python.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>

#include <cmath>
#include <iostream>
#include <limits>
#include <string>

#include "cohort/extras/train/logging/summary_writer.h"

namespace {

using cohort::train::SummaryWriter;
using cohort::train::TensorBoardLogger;
constexpr double kTime = 1700000000.25;

// Of numbers that need no generator: (i * 37 % 256).
at::Tensor bytes(at::IntArrayRef sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::arange(count).mul(37).remainder(256).to(at::kByte).view(sizes);
}

void write_scalars(SummaryWriter& writer) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double values[] = {0.1, 0.0, -1.5, 1e300, infinity, -infinity, 1e-46, 3};
  for (int64_t step = 0; step < 8; ++step) writer.add_scalar("train/loss", values[step], step * 1000, kTime + step);
  writer.add_scalar("no step", 2.0, {}, kTime);
  writer.add_scalar("negative", 2.0, -5, kTime);
  writer.add_scalar("tensor", at::full({1, 1}, 0.25, at::kHalf), int64_t{1} << 40, kTime);
  writer.add_scalar(
      "gr\xc3\xb6\xc3\x9f"
      "e",
      1.0, 1, kTime);
  writer.add_scalar("", 1.0, 1, 0.0);
}

void write_pictures(SummaryWriter& writer) {
  writer.add_histogram("weights", at::linspace(-3, 5, 1000, at::kDouble), 1, {}, kTime);
  writer.add_histogram("few bins", at::linspace(0.001, 5, 1000, at::kDouble), 2, 64, kTime);
  writer.add_histogram("bools", at::linspace(0, 1, 5).gt(0.5), 2, {}, kTime);
  writer.add_image("rgb", bytes({3, 5, 7}), 1, "CHW", kTime);
  writer.add_image("gray", bytes({5, 7}), 1, "HW", kTime);
  writer.add_image("alpha", bytes({5, 7, 4}), 1, "HWC", kTime);
  writer.add_image("floats", at::linspace(-0.5, 1.5, 105).view({3, 5, 7}), 1, "CHW", kTime);
  writer.add_images("batch", bytes({11, 3, 4, 6}), 1, "NCHW", kTime);
  writer.add_images("gray batch", bytes({2, 4, 6, 1}), 1, "nhwc", kTime);
  writer.add_text("note", "the **first** run \xc3\xa9", 3, kTime);
  writer.add_custom_scalars(
      {{"losses", {{.title = "both", .tags = {"train/loss", "b"}}}},
       {"bands",
        {{.title = "band", .kind = cohort::train::CustomChart::Kind::kMargin, .tags = {"value", "lower", "upper"}}}}});
}

void write_run(const std::string& folder, int64_t first, int64_t last, double offset) {
  cohort::train::SummaryWriterOptions options;
  if (first > 1) options.purge_step = first;
  TensorBoardLogger log(folder, options);
  log.log_hyperparameters({{"lr", 0.1}, {"batch_size", int64_t{32}}, {"amp", true}, {"name", std::string("a")}});
  for (int64_t step = first; step <= last; ++step)
    log.log_metrics(step, {{"train/loss", offset + static_cast<double>(step)}});
  log.close();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc == 3 ? argv[1] : "", what = argc == 3 ? argv[2] : "";
  if (what == "run") {
    write_run(folder, 1, 10, 0);
    write_run(folder, 6, 8, 100);
    return 0;
  }
  SummaryWriter writer(folder);
  if (what == "scalars") write_scalars(writer);
  if (what == "pictures") write_pictures(writer);
  if (what == "groups") writer.add_scalars("train/losses", {{"a", 1.0}, {"b", 2.0}}, 4, kTime);
  if (what == "hparams") {
    writer.add_hparams({{"lr", 0.1}, {"n", int64_t{32}}, {"name", std::string("a")}}, {{"accuracy", 0.75}}, "trial", 9);
  }
  writer.close();
  return writer.get_logdir() == folder ? 0 : 1;
}
