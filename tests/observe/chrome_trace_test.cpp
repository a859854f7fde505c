// Traces are read back with another JSON parser and held against what was written.
#include "observe/chrome_trace.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <limits>
#include <map>

#include "base/error.hpp"
#include "base/json.hpp"
#include "observe/temporary_folder.hpp"

namespace lockstep::observe {
namespace {

using testing::read_text;
using testing::TemporaryFolder;

Json parse(const std::filesystem::path& path) { return Json::parse(read_text(path)); }

SpanFile file_of(int rank, const std::vector<std::pair<std::string, Span>>& spans) {
  SpanFile file;
  file.rank = rank;
  for (const auto& [name, span] : spans) {
    file.names.push_back(name);
    file.spans.push_back(span);
    file.spans.back().name = static_cast<uint32_t>(file.names.size() - 1);
  }
  return file;
}

std::vector<Json> events_of(const Json& trace, const std::string& phase) {
  std::vector<Json> found;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

TEST(ChromeTrace, EmptyTraceIsWhole) {
  const TemporaryFolder folder;
  ChromeTraceWriter(folder / "t.json").close();
  const Json trace = parse(folder / "t.json");
  EXPECT_EQ(trace.at("displayTimeUnit"), "ms");
  EXPECT_TRUE(trace.at("traceEvents").is_array());
  EXPECT_TRUE(trace.at("traceEvents").empty());
}

TEST(ChromeTrace, ProcessesThreadsAndSpans) {
  const TemporaryFolder folder;
  ChromeTraceWriter writer(folder / "t.json", 1'000'000);
  writer.process(0, "rank 0");
  writer.process(7, "rank 7");
  write_spans(
      writer,
      file_of(
          7,
          {{"qkv_gemm",
            {.start_ns = 1'001'234, .end_ns = 1'003'001, .step = 5, .chunk = 1, .micro_batch = 0}},
           {"attention", {.start_ns = 1'003'001, .end_ns = 1'003'001, .step = 5}},
           {"tp_all_gather",
            {.start_ns = 999'999, .end_ns = 1'000'000, .bytes = 65536, .step = 5, .stream = Stream::tp}}}));
  writer.counter(0, "memory", 1'002'000, {{"bytes", 1.5e9}, {"peak", 0.1}});
  writer.close();
  const Json trace = parse(folder / "t.json");

  // Ids start at 1, for Perfetto gives 0 to the idle process; the sort order is the rank.
  std::map<int, std::string> processes;
  std::map<int, int> sort_order;
  std::map<std::pair<int, int>, std::string> threads;
  for (const Json& event : events_of(trace, "M")) {
    const int pid = event.at("pid");
    EXPECT_GE(pid, 1);
    if (event.at("name") == "process_name") processes[pid] = event.at("args").at("name");
    if (event.at("name") == "process_sort_index") sort_order[pid] = event.at("args").at("sort_index");
    if (event.at("name") == "thread_name") threads[{pid, event.at("tid")}] = event.at("args").at("name");
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{1, "rank 0"}, {8, "rank 7"}}));
  EXPECT_EQ(sort_order, (std::map<int, int>{{1, 0}, {8, 7}}));

  const std::vector<Json> spans = events_of(trace, "X");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].at("name"), "qkv_gemm");
  EXPECT_DOUBLE_EQ(spans[0].at("ts"), 1.234);
  EXPECT_DOUBLE_EQ(spans[0].at("dur"), 1.767);
  EXPECT_EQ(spans[0].at("args"), Json::parse(R"({"step":5,"chunk":1,"micro_batch":0})"));
  EXPECT_EQ(spans[1].at("args"), Json::parse(R"({"step":5})"));
  EXPECT_DOUBLE_EQ(spans[1].at("dur"), 0);
  EXPECT_DOUBLE_EQ(spans[2].at("ts"), -0.001);
  EXPECT_EQ(spans[2].at("args").at("bytes"), 65536);
  for (const Json& span : spans) {
    EXPECT_EQ(threads.at({span.at("pid"), span.at("tid")}), span.at("cat"));
  }
  EXPECT_EQ(threads.size(), 2u);  // each stream is named once

  const std::vector<Json> counters = events_of(trace, "C");
  ASSERT_EQ(counters.size(), 1u);
  EXPECT_EQ(counters[0].at("args").at("bytes"), 1.5e9);
  EXPECT_EQ(counters[0].at("args").at("peak"), 0.1);
}

TEST(ChromeTrace, WhatWasExposedStandsUnderComputeAndAsACounter) {
  const TemporaryFolder folder;
  SpanFile file;
  file.rank = 2;
  file.names = {"op"};
  for (int32_t step = 5; step <= 7; ++step) {
    for (const Stream stream : {Stream::compute, Stream::tp, Stream::host, Stream::exposed})
      file.spans.push_back(
          {.start_ns = step * 1000, .end_ns = step * 1000 + 500, .step = step, .stream = stream});
  }
  ChromeTraceWriter writer(folder / "t.json");
  write_spans(writer, file);
  write_exposed(writer, file, {{5, {.tp = 0.25, .dp = 0.5}}, {6, {.cp = 1, .pp = 2}}, {9, {.tp = 7}}});
  writer.close();
  const Json trace = parse(folder / "t.json");
  std::map<int, std::string> order, names;
  for (const Json& event : events_of(trace, "M")) {
    if (event.at("name") == "thread_name") names[event.at("tid")] = event.at("args").at("name");
  }
  for (const Json& event : events_of(trace, "M")) {
    if (event.at("name") == "thread_sort_index")
      order[event.at("args").at("sort_index")] = names.at(event.at("tid"));
  }
  std::string shown;
  for (const auto& [index, name] : order) shown += name + " ";
  EXPECT_EQ(shown, "compute exposed tp host ");

  const std::vector<Json> counters = events_of(trace, "C");
  ASSERT_EQ(counters.size(), 3u);
  EXPECT_EQ(counters[0].at("ts"), 5.0);
  EXPECT_EQ(counters[0].at("pid"), 3);
  EXPECT_EQ(counters[0].at("args"), Json::parse(R"({"tp":250,"cp":0,"pp":0,"dp":500})"));
  EXPECT_EQ(counters[1].at("args"), Json::parse(R"({"tp":0,"cp":1000,"pp":2000,"dp":0})"));
  EXPECT_EQ(counters[2].at("ts"), 6.5) << "over with the last step that has one";
  EXPECT_EQ(counters[2].at("args"), Json::parse(R"({"tp":0,"cp":0,"pp":0,"dp":0})"));
}

TEST(ChromeTrace, FlowsJoinBothEndsOfAMessage) {
  const TemporaryFolder folder;
  const uint64_t id = (uint64_t{1} << 60) + 1;  // beyond what a double holds
  ChromeTraceWriter writer(folder / "t.json");
  write_spans(writer, file_of(0, {{"pp_send",
                                   {.start_ns = 1000,
                                    .end_ns = 3000,
                                    .message = id,
                                    .stream = Stream::pp,
                                    .message_end = MessageEnd::sent}}}));
  write_spans(writer, file_of(1, {{"pp_receive",
                                   {.start_ns = 500,
                                    .end_ns = 4000,
                                    .message = id,
                                    .stream = Stream::pp,
                                    .message_end = MessageEnd::received}}}));
  writer.close();
  const Json trace = parse(folder / "t.json");
  const Json start = events_of(trace, "s").at(0);
  const Json finish = events_of(trace, "f").at(0);
  EXPECT_EQ(start.at("id"), "0x1000000000000001");
  EXPECT_EQ(finish.at("id"), start.at("id"));
  EXPECT_EQ(finish.at("bp"), "e");
  EXPECT_EQ(start.at("name"), finish.at("name"));
  EXPECT_EQ(start.at("cat"), finish.at("cat"));
  // Each lies inside its own slice, on its thread, and the arrow points forward in time.
  const std::vector<Json> spans = events_of(trace, "X");
  const auto inside = [](const Json& flow, const Json& span) {
    const double at = flow.at("ts"), begin = span.at("ts"), end = begin + span.at("dur").get<double>();
    return flow.at("pid") == span.at("pid") && flow.at("tid") == span.at("tid") && begin <= at && at < end;
  };
  EXPECT_TRUE(inside(start, spans.at(0)));
  EXPECT_TRUE(inside(finish, spans.at(1)));
  EXPECT_LT(start.at("ts").get<double>(), finish.at("ts").get<double>());
}

TEST(ChromeTrace, NestedSpansStayNested) {
  const TemporaryFolder folder;
  ChromeTraceWriter writer(folder / "t.json");
  // Nanosecond borders at large times, where a rounded microsecond would let a child stick out.
  const int64_t base = 86'400'000'000'000 * 365;
  write_spans(writer, file_of(0, {{"parent", {.start_ns = base + 1, .end_ns = base + 1000}},
                                  {"child", {.start_ns = base + 1, .end_ns = base + 999}},
                                  {"next", {.start_ns = base + 1000, .end_ns = base + 1001}}}));
  writer.close();
  const std::string text = read_text(folder / "t.json");
  EXPECT_NE(text.find("\"ts\":31536000000000.001,\"dur\":0.999"), text.npos) << text;
  EXPECT_NE(text.find("\"ts\":31536000000000.001,\"dur\":0.998"), text.npos);
  EXPECT_NE(text.find("\"ts\":31536000000001.000,\"dur\":0.001"), text.npos);
}

TEST(ChromeTrace, ManyEventsStreamThroughTheBuffer) {
  const TemporaryFolder folder;
  ChromeTraceWriter writer(folder / "t.json");
  constexpr int count = 20000;  // several times the buffer
  std::vector<std::pair<std::string, Span>> ops;
  for (int i = 0; i < count; ++i)
    ops.push_back({"op", {.start_ns = i * 10, .end_ns = i * 10 + 10, .step = i}});
  write_spans(writer, file_of(0, ops));
  writer.close();
  const std::vector<Json> spans = events_of(parse(folder / "t.json"), "X");
  ASSERT_EQ(spans.size(), static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) ASSERT_EQ(spans[static_cast<size_t>(i)].at("args").at("step"), i);
}

TEST(ChromeTrace, WorkersFilesMerge) {
  const TemporaryFolder folder;
  for (int rank = 0; rank < 2; ++rank) {
    SpanRecorder recorder(rank, 2);
    const uint32_t name = recorder.name_id(rank == 0 ? "forward" : "backward");
    for (int i = 0; i < 2 + rank; ++i) recorder.record({.start_ns = i, .end_ns = i + 1, .name = name});
    recorder.save(folder / std::to_string(rank));
  }
  ChromeTraceWriter writer(folder / "t.json");
  for (int rank = 0; rank < 2; ++rank) write_spans(writer, load_spans(folder / std::to_string(rank)));
  writer.close();
  const std::vector<Json> spans = events_of(parse(folder / "t.json"), "X");
  ASSERT_EQ(spans.size(), 5u);
  EXPECT_EQ(spans[1].at("name"), "forward");
  EXPECT_EQ(spans[3].at("name"), "backward");
  EXPECT_EQ(spans[4].at("name"), "1 later spans not recorded: the recorder was full");
}

TEST(ChromeTrace, NamesAreEscaped) {
  const TemporaryFolder folder;
  const std::string name = "a\"b\\c\n\t\x01 日本 </script>";
  ChromeTraceWriter writer(folder / "t.json");
  writer.process(0, name);
  write_spans(writer, file_of(0, {{name, {}}}));
  writer.counter(0, name, 0, {{name, 1}});
  writer.close();
  const Json trace = parse(folder / "t.json");
  EXPECT_EQ(events_of(trace, "M").at(0).at("args").at("name"), name);
  EXPECT_EQ(events_of(trace, "X").at(0).at("name"), name);
  EXPECT_EQ(events_of(trace, "C").at(0).at("args").at(name), 1);
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 63));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 63));
    put(0x80 | (code & 63));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 63));
    put(0x80 | (code >> 6 & 63));
    put(0x80 | (code & 63));
  }
}

TEST(JsonQuote, AgreesWithAnotherWriterOnAnyBytes) {
  const auto whole = [](const std::string& text) {
    try {
      return Json(text).dump();  // throws on bytes that are not UTF-8
    } catch (const Json::type_error&) {
      return std::string();
    }
  };
  EXPECT_TRUE(rc::check("quoted bytes are JSON, and the same string when they are UTF-8",
                        [&](const std::string& text) {
                          RC_ASSERT(Json::accept(json_quote(text)));
                          if (!whole(text).empty()) RC_ASSERT(Json::parse(json_quote(text)) == Json(text));
                        }));
  // Every code point, in one string.
  std::string all;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    append_utf8(all, code);
  }
  EXPECT_TRUE(Json::parse(json_quote(all)) == Json(all));
  EXPECT_EQ(json_quote("\xC0\x80|\xED\xA0\x80|\xF4\x90\x80\x80|\xE2\x82"),
            "\"\uFFFD\uFFFD|\uFFFD\uFFFD\uFFFD|\uFFFD\uFFFD\uFFFD\uFFFD|\uFFFD\uFFFD\"");
}

TEST(ChromeTrace, FailuresAreTold) {
  EXPECT_THROW(ChromeTraceWriter("/nonexistent/t.json"), RunError);
  const TemporaryFolder folder;
  ChromeTraceWriter writer(folder / "t.json");
  EXPECT_THROW(writer.counter(0, "x", 0, {{"y", std::numeric_limits<double>::quiet_NaN()}}), RunError);
  writer.close();
  EXPECT_TRUE(parse(folder / "t.json").at("traceEvents").empty());  // nothing half-written
  ChromeTraceWriter full("/dev/full");
  write_spans(full, file_of(0, {{"op", {}}}));
  EXPECT_THROW(full.close(), RunError);
}

}  // namespace
}  // namespace lockstep::observe
