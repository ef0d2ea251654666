#include "cohort/pipeline/drawing.h"

#include <gtest/gtest.h>

#include <string>

#include "cohort/pipeline/schedules.h"

namespace cohort::pipeline {
namespace {

Timeline timeline_of(ScheduleKind kind, const PipelineShape& shape) {
  return *simulate(*plan_schedule(kind, shape), *stage_ranks_of(kind, shape), OrderFormat::kComputeOnly);
}

TEST(Drawing, TextShowsWhoWaits) {
  EXPECT_EQ(text_drawing(timeline_of(ScheduleKind::kGPipe, {2, 2, 2})),
            "rank 0  0F0 0F1 .   .   .   0B0 === 0B1 ===\n"
            "rank 1  .   1F0 1F1 1B0 === 1B1 === .   .\n");
  EXPECT_EQ(text_drawing(timeline_of(ScheduleKind::kInterleavedZeroBubble, {2, 2, 2})),
            "rank 0  0F0 0F1 .   0I0 0W0 0I1 0W1\n"
            "rank 1  .   1F0 1I0 1F1 1I1 1W0 1W1\n");
  EXPECT_EQ(text_drawing({}), "");
}

TEST(Drawing, SvgHasABoxPerAction) {
  const std::string svg = svg_drawing(timeline_of(ScheduleKind::kGPipe, {2, 2, 3}));
  size_t num_boxes = 0;
  for (size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1)) ++num_boxes;
  EXPECT_EQ(num_boxes, 12u);
  EXPECT_NE(svg.find(">bubble 25.0 %</text>"), std::string::npos);
  EXPECT_NE(svg.find(">1B2</text>"), std::string::npos);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_TRUE(svg_drawing({}).ends_with("</svg>\n"));
}

}  // namespace
}  // namespace cohort::pipeline
