#include "cohort/extras/report/plots/chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include "cohort/extras/files/images/image_reader.h"
#include "cohort/files/input/input_file.h"

namespace cohort::report {
namespace {

PlotChart loss_chart() {
  PlotChart chart{.title = "loss", .x_label = "step"};
  PlotCurve train{"train", {}}, validation{"validation", {}};
  for (int step = 0; step <= 400; ++step) train.points.emplace_back(step, 2.0 * std::exp(-step / 100.0));
  for (int step = 0; step <= 400; step += 100) validation.points.emplace_back(step, 2.2 * std::exp(-step / 120.0));
  chart.curves = {train, validation};
  return chart;
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

struct Pixels {
  std::vector<uint8_t> bytes;
  files::ImageShape shape;
  // How many pixels are nearly of the color, in the rows from `top` to `bottom`.
  int64_t like(int red, int green, int blue, uint32_t top, uint32_t bottom) const {
    int64_t found = 0;
    for (size_t i = size_t{top} * shape.width; i < size_t{bottom} * shape.width; ++i) {
      const uint8_t* pixel = &bytes[3 * i];
      found += std::abs(pixel[0] - red) + std::abs(pixel[1] - green) + std::abs(pixel[2] - blue) < 40;
    }
    return found;
  }
};

Pixels pixels_of(const std::string& png) {
  const auto file = files::InputFile::view("plot.png", png);
  auto reader = files::ImageReader::open(file).value();
  Pixels pixels{{}, reader.shape()};
  pixels.bytes.resize(pixels.shape.num_bytes());
  EXPECT_TRUE(reader.read(pixels.bytes.data(), files::ImageLayout::kInterleaved).ok());
  return pixels;
}

TEST(PlotSvg, HasTitleLabelsTicksLegendAndCurves) {
  const std::string svg = plot_svg({loss_chart()}).value();
  EXPECT_EQ(svg.substr(0, 110),
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"400\" viewBox=\"0 0 800 400\" "
            "font-family=\"sans-serif");
  for (const char* text : {">loss<", ">step<", ">train<", ">validation<", ">0.5<", ">400<"}) {
    EXPECT_EQ(count(svg, text), 1U) << text;
  }
  EXPECT_EQ(count(svg, "stroke=\"#0072b2\""), 2U);  // the curve, and its sample in the legend
  EXPECT_EQ(count(svg, "stroke=\"#d55e00\""), 2U);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

TEST(PlotSvg, ANarrowOneHasRoomForItsCurves) {
  PlotChart chart{.title = "loss", .x_label = "step", .y_label = "nats"};
  chart.curves = {{"a name of many letters, to be cut", {{0, 1000000001}, {1, 1000000002}}}};
  const std::string svg = plot_svg({chart}, {.width = 200}).value();
  const std::regex curve("points=\"([0-9.]+),[0-9.]+ ([0-9.]+),[0-9.]+\"[^>]*#0072b2");
  std::smatch ends;
  ASSERT_TRUE(std::regex_search(svg, ends, curve)) << svg;
  EXPECT_GT(std::stod(ends[2]), std::stod(ends[1]) + 30) << svg;
}

TEST(PlotSvg, EscapesWhatXmlMeansOtherwise) {
  PlotChart chart = loss_chart();
  chart.title = "a<b>&\"c\"\n";
  EXPECT_EQ(count(plot_svg({chart}).value(), ">a&lt;b&gt;&amp;&quot;c&quot; <"), 1U);
}

TEST(PlotSvg, NumbersThatAreNoneLeaveGaps) {
  PlotChart chart{.title = "loss"};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  chart.curves = {{"", {{0, 1}, {1, 2}, {2, nan}, {3, 2}, {4, 1}}}};
  EXPECT_EQ(count(plot_svg({chart}).value(), "stroke=\"#0072b2\""), 2U);
  chart.log_y = true;
  chart.curves[0].points[2].second = 0.0;
  EXPECT_EQ(count(plot_svg({chart}).value(), "stroke=\"#0072b2\""), 2U);
}

TEST(PlotSvg, OfAMillionPointsHasAsManyAsCanBeSeen) {
  PlotChart chart{.title = "loss"};
  chart.curves = {{"", {}}};
  for (int i = 0; i < 1000000; ++i) chart.curves[0].points.emplace_back(i, i % 1000);
  const size_t size = plot_svg({chart}).value().size();
  EXPECT_GT(size, 20000U);
  EXPECT_LT(size, 60000U);
}

TEST(PlotSvg, SaysWhereThereIsNothing) {
  EXPECT_EQ(count(plot_svg({{.title = "loss"}}).value(), ">no numbers to draw<"), 1U);
}

TEST(PlotPng, APointAloneCanBeSeen) {
  const PlotChart chart{.title = "accuracy", .curves = {{"", {{48, 0.9}}}}};
  EXPECT_GE(pixels_of(plot_png({chart}).value()).like(0, 114, 178, 0, 400), 20);
}

TEST(PlotPng, DrawsTheCurvesAboveEachOther) {
  PlotChart second = loss_chart();
  second.curves.resize(1);
  const Pixels pixels = pixels_of(plot_png({loss_chart(), second}, {600, 300}).value());
  EXPECT_EQ(pixels.shape, (files::ImageShape{600, 600, 3}));
  for (const uint32_t top : {0U, 300U}) {
    EXPECT_GT(pixels.like(0, 114, 178, top, top + 300), 300);                   // the first curve
    EXPECT_EQ(pixels.like(213, 94, 0, top, top + 300) > 300, top == 0) << top;  // the second one
    EXPECT_GT(pixels.like(40, 40, 40, top, top + 36), 50);                      // the title
    EXPECT_GT(pixels.like(255, 255, 255, top, top + 300), 100000);
  }
}

TEST(Plot, RefusesSizesThatNobodyWants) {
  EXPECT_EQ(plot_png({loss_chart()}, {100, 400}).error().describe(),
            "a chart of 100 x 400 pixels cannot be drawn: sides are 200 to 4000");
  EXPECT_EQ(plot_svg(std::vector<PlotChart>(11, loss_chart()), {400, 4000}).error().describe(),
            "11 charts of 4000 rows of pixels are too many for one picture, which has 40000 at most");
}

TEST(Plot, AChartForEachLastPartOfTheNames) {
  const auto charts = charts_by_name({{"train/loss", {{1, 1}}}, {"lr", {}}, {"validation/loss", {}}}, "step");
  ASSERT_EQ(charts.size(), 2U);
  EXPECT_EQ(charts[0].title, "loss");
  EXPECT_EQ(charts[0].x_label, "step");
  ASSERT_EQ(charts[0].curves.size(), 2U);
  EXPECT_EQ(charts[0].curves[0].name, "train");
  EXPECT_EQ(charts[0].curves[0].points.size(), 1U);
  EXPECT_EQ(charts[0].curves[1].name, "validation");
  EXPECT_EQ(charts[1].title, "lr");
  EXPECT_EQ(charts[1].curves[0].name, "");
}

}  // namespace
}  // namespace cohort::report
