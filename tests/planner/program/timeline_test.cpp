#include "planner/program/timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/hdf5.h"
#include "tests/planner/program/program_fixture.h"

namespace hydraulis {
namespace {

class TimelineFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("hydraulis_timeline_" + std::to_string(::getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path file(const char* name) const { return folder_ / name; }

  nlohmann::json written(const Timeline& timeline) const {
    const std::uint64_t bytes = write_chrome_trace(timeline, file("t.json"));
    EXPECT_EQ(bytes, std::filesystem::file_size(file("t.json")));
    return nlohmann::json::parse(read_text_file(file("t.json")));
  }

  std::filesystem::path folder_;
};

TimelineEvent event(int stage, Op op, StreamKind stream, double start, double end,
                    std::int64_t bytes = 0) {
  TimelineEvent result;
  result.stage = stage;
  result.op = op;
  result.stream = stream;
  result.start_seconds = start;
  result.end_seconds = end;
  result.bytes = bytes;
  return result;
}

Timeline sample() {
  BatchPlan plan;
  plan.pipelines = {testing::pipeline_plan(testing::scheme(1, 2, 2), {16, 16})};
  Timeline timeline;
  timeline.origin = "simulated";
  timeline.model_name = "tiny";
  timeline.tracks =
      timeline_tracks(lower(plan, testing::cost_model(testing::tiny_model(), 1, 8, {8, 1, 1})));
  timeline.events = {
      event(0, Op::forward, StreamKind::compute, 0, 0.5),
      event(0, Op::send_activation, StreamKind::activation_send, 0.5, 0.75, 1000),
      event(1, Op::receive_activation, StreamKind::activation_receive, 0.5, 0.75, 1000),
      event(0, Op::forward, StreamKind::compute, 0.5, 1.0),
      event(1, Op::forward, StreamKind::compute, 0.75, 1.5)};
  timeline.events[3].micro_batch = 1;
  timeline.events[3].instruction = 9;
  timeline.events[3].iteration = 2;
  return timeline;
}

TEST_F(TimelineFiles, TracksNameTheStages) {
  const Timeline timeline = sample();
  ASSERT_EQ(timeline.tracks.size(), 2u);
  EXPECT_EQ(timeline.tracks[1].stage_in_pipeline, 1);
  EXPECT_EQ(timeline.tracks[1].scheme, "(1,2,2)");
  EXPECT_EQ(timeline.tracks[1].devices, (std::vector<int>{2, 3}));
}

TEST_F(TimelineFiles, ChromeTraceIsInMicrosecondsWithNamedTracks) {
  const nlohmann::json trace = written(sample());
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  double last = 0;
  std::map<std::string, int> metadata;
  int slices = 0;
  for (const auto& e : trace["traceEvents"]) {
    if (e["ph"] == "M") {
      ++metadata[e["name"].get<std::string>()];
      continue;
    }
    EXPECT_EQ(e["ph"], "X");
    ++slices;
    last = std::max(last, e["ts"].get<double>() + e["dur"].get<double>());
  }
  EXPECT_EQ(last, 1500000);  // a step of 1.5 s
  EXPECT_EQ(slices, 5);
  EXPECT_EQ(metadata["process_name"], 2);
  EXPECT_EQ(metadata["process_sort_index"], 2);
  EXPECT_EQ(metadata["thread_name"], 4);
  EXPECT_EQ(metadata["thread_sort_index"], 4);
}

TEST_F(TimelineFiles, FractionsOfAMicrosecondStay) {
  Timeline timeline = sample();
  timeline.events = {event(0, Op::forward, StreamKind::compute, 1.000000001, 1.000000123)};
  write_chrome_trace(timeline, file("t.json"));
  const std::string text = read_text_file(file("t.json"));
  EXPECT_NE(text.find("\"ts\":1000000.001,\"dur\":0.122,"), std::string::npos) << text;
}

TEST_F(TimelineFiles, SlicesOfATrackAreDisjointEvenIfEventsComeUnsorted) {
  Timeline timeline = sample();
  timeline.events.clear();
  double t = 0;
  for (int i = 0; i < 1000; ++i) {
    const double next = t + 1e-7 * (1 + i % 7) / 3;
    timeline.events.push_back(event(i % 2, Op::forward, StreamKind::compute, t, next));
    t = next;
  }
  std::reverse(timeline.events.begin(), timeline.events.end());
  std::map<std::pair<int, int>, std::int64_t> ends;
  const nlohmann::json trace = written(timeline);
  for (const auto& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    const std::int64_t start = std::llround(e["ts"].get<double>() * 1000);
    std::int64_t& end = ends[{e["pid"].get<int>(), e["tid"].get<int>()}];
    EXPECT_GE(start, end);
    end = start + std::llround(e["dur"].get<double>() * 1000);
  }
  EXPECT_EQ(ends.size(), 2u);
}

TEST_F(TimelineFiles, OverlapOnOneStreamIsRefused) {
  Timeline timeline = sample();
  timeline.events.push_back(event(0, Op::backward, StreamKind::compute, 0.25, 0.5));
  EXPECT_THROW(write_chrome_trace(timeline, file("t.json")), InputError);
  EXPECT_FALSE(std::filesystem::exists(file("t.json")));
}

TEST_F(TimelineFiles, ValidJsonForAnyNameAndTransfersOfNoTime) {
  Timeline timeline = sample();
  timeline.model_name = "q\" b\\ n\n t\t \xC3\xA9 \x01 \xFF bad";
  timeline.tracks[0].scheme = "\"),\n\xFE";
  timeline.events.push_back(event(0, Op::send_gradient, StreamKind::gradient_send, 2, 2, 4096));
  const nlohmann::json trace = written(timeline);
  EXPECT_NE(trace["otherData"]["model"].get<std::string>().find("q\" b\\ n\n t\t \xC3\xA9 \x01"),
            std::string::npos);
  bool seen = false;
  for (const auto& e : trace["traceEvents"]) {
    if (e["name"] != "send_gradient") continue;
    seen = true;
    EXPECT_EQ(e["args"]["bytes"], 4096);
    EXPECT_FALSE(e["args"].contains("gigabytes_per_second"));
  }
  EXPECT_TRUE(seen);
}

TEST_F(TimelineFiles, GzipHoldsTheSameText) {
  Timeline timeline = sample();
  for (int i = 0; i < 5000; ++i) {
    timeline.events.push_back(event(0, Op::forward, StreamKind::compute, 2 + i, 2.5 + i));
  }
  write_chrome_trace(timeline, file("t.json"));
  const std::uint64_t bytes = write_chrome_trace(timeline, file("t.json.gz"));
  EXPECT_EQ(bytes, std::filesystem::file_size(file("t.json.gz")));
  EXPECT_LT(bytes, std::filesystem::file_size(file("t.json")) / 5);
  std::string text;
  char block[4096];
  gzFile gzip = gzopen(file("t.json.gz").c_str(), "rb");
  for (int n; (n = gzread(gzip, block, sizeof block)) > 0;) text.append(block, n);
  gzclose(gzip);
  EXPECT_EQ(text, read_text_file(file("t.json")));
}

TEST_F(TimelineFiles, TimesThatAreNoTimesAreRefusedByBothWriters) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const auto& [start, end] : {std::pair{nan, 1.0},
                                   {0.0, nan},
                                   {0.0, inf},
                                   {-inf, 0.0},
                                   {-1.0, 0.0},
                                   {2.0, 1.0},
                                   {0.0, 1e300}}) {
    Timeline timeline = sample();
    timeline.events.push_back(event(1, Op::backward, StreamKind::compute, start, end));
    EXPECT_THROW(write_chrome_trace(timeline, file("t.json")), InputError) << start << " " << end;
    EXPECT_THROW(write_timeline_hdf5(timeline, file("t.h5")), InputError) << start << " " << end;
  }
  Timeline timeline = sample();
  timeline.events.push_back(event(2, Op::backward, StreamKind::compute, 0, 1));
  EXPECT_THROW(write_chrome_trace(timeline, file("t.json")), InputError);
}

TEST_F(TimelineFiles, Hdf5RoundTrip) {
  const Timeline timeline = sample();
  write_timeline_hdf5(timeline, file("t.h5"));
  const Timeline back = read_timeline_hdf5(file("t.h5"));
  EXPECT_EQ(back.origin, timeline.origin);
  EXPECT_EQ(back.model_name, timeline.model_name);
  ASSERT_EQ(back.tracks.size(), timeline.tracks.size());
  for (std::size_t i = 0; i < back.tracks.size(); ++i) {
    EXPECT_EQ(back.tracks[i].scheme, timeline.tracks[i].scheme);
    EXPECT_EQ(back.tracks[i].devices, timeline.tracks[i].devices);
    EXPECT_EQ(back.tracks[i].pipeline, timeline.tracks[i].pipeline);
    EXPECT_EQ(back.tracks[i].stage_in_pipeline, timeline.tracks[i].stage_in_pipeline);
  }
  ASSERT_EQ(back.events.size(), timeline.events.size());
  for (std::size_t i = 0; i < back.events.size(); ++i) {
    const TimelineEvent& x = back.events[i];
    const TimelineEvent& y = timeline.events[i];
    EXPECT_EQ(std::tuple(x.iteration, x.stage, x.instruction, x.op, x.stream, x.micro_batch),
              std::tuple(y.iteration, y.stage, y.instruction, y.op, y.stream, y.micro_batch));
    EXPECT_EQ(std::tuple(x.start_seconds, x.end_seconds, x.bytes),
              std::tuple(y.start_seconds, y.end_seconds, y.bytes));
  }
}

TEST_F(TimelineFiles, DamagedHdf5IsRefused) {
  write_timeline_hdf5(sample(), file("t.h5"));
  std::string text = read_text_file(file("t.h5"));
  std::ofstream(file("cut.h5"), std::ios::binary) << text.substr(0, text.size() / 2);
  EXPECT_THROW(read_timeline_hdf5(file("cut.h5")), InputError);
  std::ofstream(file("text.h5")) << "not HDF5";
  EXPECT_THROW(read_timeline_hdf5(file("text.h5")), InputError);
  EXPECT_THROW(read_timeline_hdf5(file("missing.h5")), InputError);
  {
    Hdf5File other = Hdf5File::create(file("other.h5"), "other.h5");
    other.set_attribute("/", "format", "something else");
    other.close();
  }
  EXPECT_THROW(read_timeline_hdf5(file("other.h5")), InputError);
}

}  // namespace
}  // namespace hydraulis
