// Both formats are read back by readers of the test's own and held against the spans, and against each other.
#include "observe/perfetto_trace.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include "base/error.hpp"
#include "observe/shown_trace.hpp"
#include "observe/temporary_folder.hpp"

namespace lockstep::observe {
namespace {

using testing::message_of;
using testing::read_text;
using testing::ShownSlice;
using testing::ShownTrace;
using testing::TemporaryFolder;

std::string process_name(int rank) { return "rank " + std::to_string(rank) + " \"tp0\""; }

void write(const std::filesystem::path& path, const std::vector<SpanFile>& files, int64_t origin = 0) {
  const std::unique_ptr<TraceWriter> writer = open_trace(path, origin);
  for (const SpanFile& file : files) {
    writer->process(file.rank, process_name(file.rank));
    write_spans(*writer, file);
  }
  writer->close();
}

ShownTrace perfetto_of(const std::vector<SpanFile>& files, int64_t origin = 0) {
  const TemporaryFolder folder;
  write(folder / "t.pftrace", files, origin);
  return testing::read_perfetto(read_text(folder / "t.pftrace"));
}
ShownTrace chrome_of(const std::vector<SpanFile>& files, int64_t origin = 0) {
  const TemporaryFolder folder;
  write(folder / "t.json", files, origin);
  return testing::read_chrome(read_text(folder / "t.json"));
}

// Spans at random, many of them at once on a stream, some without length, with and without every figure.
std::vector<SpanFile> drawn_files(unsigned seed, int ranks, int spans) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<SpanFile> files;
  for (int rank = 0; rank < ranks; ++rank) {
    SpanFile& file = files.emplace_back();
    file.rank = rank * 1000;
    file.names = {"qkv_gemm", "attention", "send \"\n", "never used", "日本"};
    for (int i = 0; i < spans; ++i) {
      Span span;
      span.start_ns = 1'000'000'000'000 + pick(0, 3 * spans);
      span.end_ns = span.start_ns + std::max<int64_t>(pick(-5, 20), 0);
      span.bytes = pick(0, 1) * pick(0, int64_t{1} << 52);
      span.name = static_cast<uint32_t>(pick(0, 1) == 0 ? pick(0, 2) : 4);
      span.step = static_cast<int32_t>(pick(0, 1'000'000));
      span.chunk = static_cast<int32_t>(pick(-1, 2));
      span.micro_batch = static_cast<int32_t>(pick(-1, 300));
      span.stream = static_cast<Stream>(pick(0, stream_count - 1));
      span.message_end = static_cast<MessageEnd>(pick(0, 2));
      span.message = random();
      file.spans.push_back(span);
    }
  }
  return files;
}

// What the spans say, whatever the track they came to.
std::vector<ShownSlice> slices_of_spans(const std::vector<SpanFile>& files, int64_t origin) {
  std::vector<ShownSlice> out;
  for (const SpanFile& file : files) {
    for (const Span& span : file.spans) {
      ShownSlice& slice = out.emplace_back();
      slice.pid = file.rank + 1;
      slice.start_ns = span.start_ns - origin;
      slice.end_ns = span.end_ns - origin;
      slice.category = stream_name(span.stream);
      slice.name = file.names[span.name];
      slice.arguments["step"] = span.step;
      if (span.chunk >= 0) slice.arguments["chunk"] = span.chunk;
      if (span.micro_batch >= 0) slice.arguments["micro_batch"] = span.micro_batch;
      if (span.bytes != 0) slice.arguments["bytes"] = span.bytes;
      if (span.message_end == MessageEnd::sent) slice.leaves = span.message;
      if (span.message_end == MessageEnd::received) slice.arrives = span.message;
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The same slices without their threads, each of which must be one of its stream's.
std::vector<ShownSlice> without_threads(const ShownTrace& trace) {
  std::vector<ShownSlice> out;
  for (ShownSlice slice : trace.slices) {
    const std::string& thread = trace.threads.at({slice.pid, slice.tid}).first;
    EXPECT_TRUE(thread == slice.category || thread.starts_with(slice.category + " ")) << thread;
    slice.tid = 0;
    out.push_back(slice);
  }
  std::sort(out.begin(), out.end());
  return out;
}

TEST(PerfettoTrace, BothFormatsShowEverySpanAndArrow) {
  constexpr int64_t origin = 999'999'999'000;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const std::vector<SpanFile> files = drawn_files(seed, 3, 200);
    const ShownTrace perfetto = perfetto_of(files, origin), chrome = chrome_of(files, origin);
    const std::vector<ShownSlice> expected = slices_of_spans(files, origin);
    EXPECT_EQ(without_threads(perfetto), expected) << seed;
    EXPECT_EQ(without_threads(chrome), expected) << seed;
    EXPECT_EQ(perfetto.processes, chrome.processes) << seed;
    EXPECT_EQ(perfetto.threads, chrome.threads) << seed;
    EXPECT_EQ(perfetto.slices, chrome.slices) << seed << ": thread by thread";
    EXPECT_EQ(perfetto.processes.at(2001), (std::pair(process_name(2000), 2000)));
  }
}

TEST(PerfettoTrace, SpansThatOnlyOverlapGoToFurtherLanes) {
  SpanFile file;
  file.names = {"outer", "inner", "across", "later"};
  const auto add = [&](uint32_t name, int64_t start, int64_t end) {
    file.spans.push_back({.start_ns = start, .end_ns = end, .name = name, .stream = Stream::pp});
  };
  add(1, 2, 10);
  add(0, 0, 10);
  add(2, 5, 15);
  add(3, 15, 20);
  const ShownTrace trace = perfetto_of({file});
  std::map<std::string, std::set<std::string>> shown;
  for (const ShownSlice& slice : trace.slices) {
    shown[trace.threads.at({slice.pid, slice.tid}).first].insert(slice.name);
  }
  EXPECT_EQ(shown, (std::map<std::string, std::set<std::string>>{{"pp", {"outer", "inner", "later"}},
                                                                 {"pp 2", {"across"}}}));
}

TEST(PerfettoTrace, DroppedSpansAreTold) {
  std::vector<SpanFile> files = drawn_files(1, 1, 5);
  files[0].dropped = 3;
  const ShownTrace trace = perfetto_of(files);
  EXPECT_EQ(trace.slices.size(), 6u);
  EXPECT_EQ(std::count_if(trace.slices.begin(), trace.slices.end(),
                          [](const ShownSlice& slice) {
                            return slice.name == "3 later spans not recorded: the recorder was full";
                          }),
            1);
  EXPECT_EQ(trace, chrome_of(files));
}

TEST(PerfettoTrace, AnEmptyTraceIsAnEmptyFile) {
  const TemporaryFolder folder;
  write(folder / "t.pftrace", {});
  EXPECT_EQ(read_text(folder / "t.pftrace"), "");
}

// protobuf's own decoder, which knows no schema, finds the same packets.
TEST(PerfettoTrace, ProtocReadsIt) {
  if (std::system("protoc --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "protoc is not there (Debian: protobuf-compiler)";
  }
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "t.pftrace";
  write(path, drawn_files(7, 2, 3000));  // several times the buffer
  const std::string command = "protoc --decode_raw < " + path.string() + " > " + (folder / "text").string();
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string text = read_text(folder / "text");
  size_t packets = text.starts_with("1 {\n") ? 1 : 0;
  for (size_t at = 0; (at = text.find("\n1 {\n", at)) != text.npos; ++at) ++packets;
  EXPECT_EQ(packets, testing::perfetto_packets(read_text(path)));
  EXPECT_GT(packets, 2u * 2 * 3000);
}

// Files may not grow beyond this while it lives, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST(TraceFiles, AreWholeOrAsTheyWere) {
  for (const char* name : {"t.json", "t.pftrace"}) {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder / name;
    testing::write_text(path, "before");
    const std::vector<SpanFile> files = drawn_files(3, 1, 20'000);
    const std::string told = message_of<RunError>([&] {
      const FileSizeLimit limit(300'000);  // more than the buffer holds, less than the trace
      write(path, files);
    });
    EXPECT_EQ(told, path.string() + ": cannot write the trace: File too large");
    EXPECT_EQ(read_text(path), "before");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "no remains";
    write(path, files);
    EXPECT_GT(std::filesystem::file_size(path), 300'000u);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms{0644});
  }
}

TEST(TraceFiles, TellWhatIsWrongWithTheirPlace) {
  const TemporaryFolder folder;
  for (const char* name : {"t.json", "t.pftrace"}) {
    const std::string nowhere = (folder / "no").string() + "/" + name;
    EXPECT_EQ(message_of<RunError>([&] { open_trace(nowhere); }),
              nowhere + ": cannot create the trace: No such file or directory");
    std::filesystem::create_directory(folder / name);
    EXPECT_EQ(message_of<RunError>([&] { open_trace(folder / name); }),
              (folder / name).string() + ": cannot create the trace: Is a directory");
  }
  // A device stays what it is, and its refusal is told.
  PerfettoTraceWriter full("/dev/full");
  full.process(0, "rank 0");
  EXPECT_EQ(message_of<RunError>([&] { full.close(); }),
            "/dev/full: cannot write the trace: No space left on device");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(TraceFiles, AreKnownByTheirBegin) {
  const TemporaryFolder folder;
  for (const char* name : {"t.json", "t.pftrace", "t.PFTRACE", "t.txt"}) {
    write(folder / name, drawn_files(3, 2, 10));
    EXPECT_TRUE(holds_trace(folder / name)) << name;
    const std::string whole = read_text(folder / name);
    testing::write_text(folder / "changed", "x" + whole);
    EXPECT_FALSE(holds_trace(folder / "changed")) << name;
  }
  EXPECT_EQ(read_text(folder / "t.PFTRACE"), read_text(folder / "t.pftrace"))
      << "by the ending, whatever its case";
  EXPECT_EQ(read_text(folder / "t.txt"), read_text(folder / "t.json"));
  for (const std::string text :
       {"", "{", "[cluster]\n", "\x0a", "\x0a\x80\x80\x80\x80\x80", "\x0aP\x01h\x01"}) {
    testing::write_text(folder / "other", text);
    EXPECT_FALSE(holds_trace(folder / "other")) << text;
  }
  EXPECT_FALSE(holds_trace(folder / "absent"));
}

TEST(TraceFiles, FollowALinkToTheFile) {
  const TemporaryFolder folder;
  testing::write_text(folder / "real.pftrace", "before");
  std::filesystem::create_symlink("real.pftrace", folder / "link.pftrace");
  const std::vector<SpanFile> files = drawn_files(3, 1, 10);
  write(folder / "link.pftrace", files);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.pftrace"));
  EXPECT_EQ(testing::read_perfetto(read_text(folder / "real.pftrace")).slices.size(), 10u);
}

TEST(TraceFiles, AWriterThatIsNotClosedLeavesNothing) {
  const TemporaryFolder folder;
  open_trace(folder / "t.json")->process(0, "rank 0");
  open_trace(folder / "t.pftrace")->process(0, "rank 0");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(PerfettoTrace, ATimeBeforeTheOriginIsRefused) {
  SpanFile file;
  file.names = {"op"};
  file.spans.push_back({.start_ns = 5, .end_ns = 6});
  EXPECT_NE(message_of<RunError>([&] { perfetto_of({file}, 6); }).find("a span at 5 ns lies before"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::observe
