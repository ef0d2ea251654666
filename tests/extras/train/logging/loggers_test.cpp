#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <string>

#include "cohort/base/file/file.h"
#include "cohort/extras/train/logging/csv_logger.h"
#include "cohort/extras/train/logging/plot.h"
#include "cohort/extras/train/logging/run_loggers.h"
#include "cohort/extras/train/logging/summary_writer.h"
#include "cohort/train/logging/folder_loggers.h"
#include "cohort/train/logging/json_lines_logger.h"
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

TEST(Loggers, ARunThatBeginsKeepsWhatAnotherHasLogged) {
  const TemporaryFolder folder;
  const auto run = [&](double loss) {
    const auto logger = run_loggers(folder / "run", 1, {.plot = true});
    logger->log_metrics(1, {{"train/loss", loss}});
    logger->close();
  };
  run(0.5);
  testing::internal::CaptureStderr();
  run(0.25);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[cohort] warning: run_loggers: the run begins at its first step; the logs of an earlier run in \"" +
                (folder / "run/") +
                "\" are kept as events.1, metrics.1.csv, metrics.1.jsonl, curves.1.svg, curves.1.png\n");
  EXPECT_NE(contents(folder / "run/metrics.1.csv").find(",0.5\n"), std::string::npos);
  EXPECT_NE(contents(folder / "run/metrics.1.jsonl").find("\"train/loss\": 0.5}"), std::string::npos);
  EXPECT_EQ(num_lines(contents(folder / "run/metrics.csv")), 2U);
  EXPECT_TRUE(std::filesystem::is_directory(folder / "run/events.1"));
  testing::internal::CaptureStderr();
  JsonLinesLogger(folder / "run/metrics.jsonl", {.purge_step = 1}).log_metrics(1, {});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[cohort] warning: JsonLinesLogger: the run begins at its first step; the logs of an earlier run in \"" +
                (folder / "run/") + "\" are kept as metrics.2.jsonl\n");
}

// The Trainer's log_folder, in a program that has the extras.
TEST(Loggers, ThoseOfTheTrainerAreAllOfThem) {
  const TemporaryFolder folder;
  const auto loggers = detail::folder_loggers(folder / "run", 1, /*plot=*/true);
  loggers->log_metrics(1, {{"train/loss", 0.5}});
  loggers->close();
  for (const char* name : {"events", "metrics.csv", "metrics.jsonl", "curves.svg", "curves.png"}) {
    EXPECT_TRUE(std::filesystem::exists((folder / "run/") + name)) << name;
  }
}

TEST(Loggers, APlotShowsAsManyChartsAsItHasRoomFor) {
  const TemporaryFolder folder;
  PlotLogger plot(folder / "curves.svg");
  Metrics values;
  for (int i = 0; i < 101; ++i) values.emplace_back("metric" + std::to_string(i), i);
  values.emplace_back("system/cpu_percent", 50);
  plot.log_metrics(1, values);
  EXPECT_EQ(plot.charts().size(), 101U);
  testing::internal::CaptureStderr();
  plot.close();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[cohort] warning: PlotLogger: \"" + (folder / "curves.svg") +
                                                        "\" shows the first 100 charts; a picture has room for no "
                                                        "more\n");
  const std::string svg = contents(folder / "curves.svg");
  EXPECT_NE(svg.find(">metric99<"), std::string::npos);
  EXPECT_EQ(svg.find(">metric100<"), std::string::npos);
  EXPECT_EQ(svg.find("cpu_percent"), std::string::npos);
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
            "[cohort] SummaryWriter.add_histogram: \"a\": it has no numbers between -1e20 and 1e20");
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

}  // namespace
}  // namespace cohort::train
