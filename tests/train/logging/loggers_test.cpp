#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <string>

#include "cohort/base/file.h"
#include "cohort/train/logging/file_loggers.h"
#include "cohort/train/logging/plot.h"
#include "cohort/train/logging/summary_writer.h"
#include "cohort/train/logging/system_metrics.h"
#include "tests/support/require.h"
#include "tests/support/temporary_folder.h"

namespace cohort::train {
namespace {

using test::error_of;
using test::TemporaryFolder;

std::string contents(const std::string& path) { return base::read_file(path).value(); }

size_t num_lines(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

TEST(Loggers, SeveralAreOne) {
  const TemporaryFolder folder;
  LoggerList loggers;
  EXPECT_TRUE(loggers.empty());
  loggers.add(std::make_shared<CsvLogger>(folder / "a/metrics.csv"));
  loggers.add(std::make_shared<JsonLinesLogger>(folder / "a/metrics.jsonl"));
  loggers.add(std::make_shared<PlotLogger>(folder / "a/curves.svg"));
  loggers.log_hyperparameters({{"lr", 0.1}});
  loggers.log_metrics(1, {{"train/loss", 0.5}});
  loggers.log_metrics(2, {{"train/loss", 0.25}, {"validation/loss", 0.5}});
  loggers.flush();
  loggers.close();
  loggers.close();
  EXPECT_EQ(num_lines(contents(folder / "a/metrics.csv")), 3U);
  EXPECT_EQ(num_lines(contents(folder / "a/metrics.jsonl")), 3U);
  EXPECT_NE(contents(folder / "a/curves.svg").find(">validation<"), std::string::npos);
}

TEST(Loggers, AResumedRunGoesOn) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  JsonLinesLogger(path).log_metrics(1, {{"loss", 0.5}});
  JsonLinesLogger(path).log_metrics(2, {{"loss", 0.4}});
  JsonLinesLogger resumed(path, {.purge_step = 2});
  resumed.log_metrics(2, {{"loss", 0.3}});
  resumed.flush();
  PlotLogger plot(folder / "curves.png", {.history = path, .purge_step = 2});
  plot.log_metrics(2, {{"loss", 0.3}});
  const auto charts = plot.charts();
  ASSERT_EQ(charts.size(), 1U);
  EXPECT_EQ(charts[0].curves[0].points, (std::vector<std::pair<double, double>>{{1, 0.5}, {2, 0.3}}));
  plot.close();
  EXPECT_EQ(contents(folder / "curves.png").substr(1, 3), "PNG");
}

TEST(Loggers, SayWhatIsWrong) {
  const TemporaryFolder folder;
  CsvLogger csv(folder / "metrics.csv");
  EXPECT_EQ(error_of([&] { csv.log_metrics(-1, {}); }), "[cohort] CsvLogger: a step is not negative, but got -1");
  EXPECT_EQ(error_of([&] {
              csv.log_metrics(1, {{"step", 1}});
            }),
            "[cohort] CsvLogger: a metric is called \"step\", which each record has already; give it another name");
  csv.close();
  EXPECT_EQ(error_of([&] { csv.log_metrics(1, {}); }), "[cohort] CsvLogger: it is closed, so nothing can be logged");
  EXPECT_EQ(error_of([&] { JsonLinesLogger log(folder.path()); }),
            "[cohort] JsonLinesLogger: cannot open \"" + folder.path() + "\": Is a directory (EISDIR)");
  EXPECT_EQ(error_of([&] { PlotLogger plot("curves.jpg"); }),
            "[cohort] plot: the name of a picture ends in .svg or .png, but got \"curves.jpg\"");
}

TEST(SummaryWriter, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  SummaryWriter writer(folder.path());
  EXPECT_EQ(error_of([&] { writer.add_scalar("a", at::zeros({2})); }),
            "[cohort] SummaryWriter.add_scalar: \"a\" must be one number, but the tensor has the shape [2]");
  EXPECT_EQ(error_of([&] { writer.add_histogram("a", at::zeros({0})); }),
            "[cohort] SummaryWriter.add_histogram: \"a\" has no elements");
  EXPECT_EQ(error_of([&] { writer.add_histogram("a", at::full({3}, NAN)); }),
            "[cohort] SummaryWriter.add_histogram: \"a\": none of its numbers is between -1e20 and 1e20");
  EXPECT_EQ(error_of([&] { writer.add_histogram("a", at::ones({3}), 1, 0); }),
            "[cohort] SummaryWriter.add_histogram: max_bins is at least 1, but got 0");
  EXPECT_EQ(error_of([&] {
              writer.add_image("a", at::zeros({3, 4, 4}), 1, "CHH");
            }),
            "[cohort] SummaryWriter: dataformats \"CHH\" is not an order of the letters HWC");
  EXPECT_EQ(error_of([&] {
              writer.add_image("a", at::zeros({4, 4}));
            }),
            "[cohort] SummaryWriter: dataformats \"CHW\" is of 3 dimensions, but the tensor has the shape [4, 4]");
  EXPECT_EQ(error_of([&] {
              writer.add_image("a", at::zeros({2, 4, 4}));
            }),
            "[cohort] SummaryWriter: images have 1, 3 or 4 channels, but a tensor of the shape [2, 4, 4] has 2");
  EXPECT_EQ(error_of([&] {
              writer.add_images("a", at::zeros({0, 3, 4, 4}));
            }),
            "[cohort] SummaryWriter: an image of the shape [0, 4, 4, 3] has no pixels");
  EXPECT_EQ(
      error_of([&] {
        writer.add_custom_scalars({{"x", {{.title = "t", .kind = CustomChart::Kind::kMargin}}}});
      }),
      "[cohort] SummaryWriter.add_custom_scalars: the chart \"t\" shows a margin and needs three tags (value, lower, "
      "upper), but has 0");
  EXPECT_EQ(error_of([] { SummaryWriter bad("/tmp", {.max_queue = 0}); }),
            "[cohort] SummaryWriter: max_queue is at least 1, but got 0");
  EXPECT_EQ(error_of([] { SummaryWriter bad("/tmp", {.filename_suffix = "a/b"}); }),
            "[cohort] SummaryWriter: filename_suffix ends the name of a file and has no \"/\", but got \"a/b\"");
  EXPECT_EQ(error_of([] { SummaryWriter bad("/proc/none"); }),
            "[cohort] SummaryWriter: cannot create the folder \"/proc/none\": No such file or directory (ENOENT)");
}

TEST(SummaryWriter, GoesOnInAnotherFileAfterClose) {
  const TemporaryFolder folder;
  SummaryWriter writer(folder.path());
  writer.add_scalar("a", 1.0);
  writer.close();
  writer.add_scalar("a", 2.0);
  writer.close();
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) count += entry.is_regular_file();
  EXPECT_EQ(count, 2U);
}

TEST(SystemMetrics, AreMetricsForALogger) {
  SystemMetrics system({.pss = false, .gpu = false});
  const Metrics metrics = system.sample();
  ASSERT_FALSE(metrics.empty());
  for (const auto& [name, value] : metrics) {
    EXPECT_TRUE(name.starts_with("system/")) << name;
    EXPECT_NE(name, "system/pss_gib");
  }
}

}  // namespace
}  // namespace cohort::train
