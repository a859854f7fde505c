// Span files come back as written; every damage to one is refused.
#include "observe/span.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "observe/temporary_folder.hpp"

namespace lockstep::observe {
namespace {

using testing::message_of;
using testing::read_text;
using testing::TemporaryFolder;
using testing::write_text;

SpanRecorder sample_recorder() {
  SpanRecorder recorder(3, 4);
  Span gemm{.start_ns = 10,
            .end_ns = 25,
            .name = recorder.name_id("qkv_gemm"),
            .step = 7,
            .chunk = 1,
            .micro_batch = 2};
  Span send{.start_ns = 25,
            .end_ns = 30,
            .bytes = 4096,
            .message = 0xFFFFFFFFFFFFFFFFu,
            .name = recorder.name_id("pp_send"),
            .step = 7,
            .stream = Stream::pp,
            .message_end = MessageEnd::sent};
  recorder.record(gemm);
  recorder.record(send);
  return recorder;
}

TEST(SpanRecorder, NamesAreInterned) {
  SpanRecorder recorder(0, 1);
  EXPECT_EQ(recorder.name_id("a"), recorder.name_id("a"));
  EXPECT_NE(recorder.name_id("a"), recorder.name_id("b"));
  EXPECT_EQ(recorder.names(), (std::vector<std::string>{"a", "b"}));
}

TEST(SpanRecorder, IsBoundedAndCountsWhatItDrops) {
  SpanRecorder recorder(0, 2);
  const Span* before = recorder.spans().data();
  for (int i = 0; i < 5; ++i) recorder.record(Span{.start_ns = i, .end_ns = i});
  EXPECT_EQ(recorder.spans().size(), 2u);
  EXPECT_EQ(recorder.spans()[1].start_ns, 1);  // the earliest are kept
  EXPECT_EQ(recorder.dropped(), 3);
  EXPECT_EQ(recorder.spans().data(), before);  // no memory was taken on the way
}

TEST(SpanFile, KnownBytes) {
  const TemporaryFolder folder;
  sample_recorder().save(folder / "rank3.spans");
  const std::string bytes = read_text(folder / "rank3.spans");
  // magic 8, rank 4, dropped 8, two counts 16, names 4 + 8 and 4 + 7, two spans of 50, checksum 8
  EXPECT_EQ(bytes.size(), 8u + 4 + 8 + 16 + 12 + 11 + 2 * 50 + 8);
  EXPECT_EQ(bytes.substr(0, 12), std::string("LSSPAN01\x03\0\0\0", 12));
}

TEST(SpanFile, ReadsBackWhatWasRecorded) {
  const TemporaryFolder folder;
  EXPECT_TRUE(rc::check("any recorded spans come back", [&] {
    SpanRecorder recorder(*rc::gen::inRange(0, 200000), 100);
    const auto names = *rc::gen::nonEmpty(rc::gen::arbitrary<std::vector<std::string>>());
    for (const std::string& name : names) recorder.name_id(name);
    const int count = *rc::gen::inRange(0, 130);
    for (int i = 0; i < count; ++i) {
      Span span;
      const auto [a, b] = *rc::gen::arbitrary<std::pair<int64_t, int64_t>>();
      span.start_ns = std::min(a, b);
      span.end_ns = std::max(a, b);
      span.bytes = *rc::gen::arbitrary<int64_t>();
      span.message = *rc::gen::arbitrary<uint64_t>();
      span.name = recorder.name_id(names[*rc::gen::inRange<size_t>(0, names.size())]);
      span.step = *rc::gen::arbitrary<int32_t>();
      span.chunk = *rc::gen::arbitrary<int32_t>();
      span.micro_batch = *rc::gen::arbitrary<int32_t>();
      span.stream = static_cast<Stream>(*rc::gen::inRange(0, stream_count));
      span.message_end = static_cast<MessageEnd>(*rc::gen::inRange(0, 3));
      recorder.record(span);
    }
    recorder.save(folder / "f");
    const SpanFile file = load_spans(folder / "f");
    RC_ASSERT(file.rank == recorder.rank());
    RC_ASSERT(file.dropped == std::max(0, count - 100));
    RC_ASSERT(file.names == recorder.names());
    RC_ASSERT(file.spans == recorder.spans());
  }));
}

TEST(SpanFile, EveryTruncationIsRefused) {
  const TemporaryFolder folder;
  sample_recorder().save(folder / "whole");
  const std::string bytes = read_text(folder / "whole");
  write_text(folder / "cut", bytes);
  for (size_t length = bytes.size(); length-- > 0;) {
    std::filesystem::resize_file(folder / "cut", length);
    EXPECT_THROW(load_spans(folder / "cut"), RunError) << length;
  }
  write_text(folder / "cut", bytes + "x");
  EXPECT_THROW(load_spans(folder / "cut"), RunError);
}

TEST(SpanFile, EveryFlippedBitIsRefused) {
  const TemporaryFolder folder;
  sample_recorder().save(folder / "whole");
  const std::string bytes = read_text(folder / "whole");
  std::fstream file(folder / "whole", std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](size_t at, char byte) {
    file.seekp(static_cast<std::streamoff>(at)).put(byte).flush();
  };
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    put(bit / 8, static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8)));
    EXPECT_THROW(load_spans(folder / "whole"), RunError) << "bit " << bit;
    put(bit / 8, bytes[bit / 8]);
  }
  EXPECT_EQ(load_spans(folder / "whole").spans.size(), 2u);
}

// A hostile file has a right checksum: rebuild it after each change.
std::string with_checksum(std::string body) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : body) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  body.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
  return body;
}

TEST(SpanFile, HostileFieldsAreRefusedBySense) {
  const TemporaryFolder folder;
  sample_recorder().save(folder / "whole");
  const std::string whole = read_text(folder / "whole");
  const std::string body = whole.substr(0, whole.size() - 8);
  ASSERT_EQ(with_checksum(body), whole);
  const size_t first_span = body.size() - 100;
  struct Change {
    size_t at;
    std::string bytes;
    const char* why;
  };
  const std::string huge(8, '\x7F');
  for (const Change& change :
       {Change{20, huge, "counts"}, Change{28, huge, "counts"},
        Change{36, "\xFF\xFF\xFF\xFF", "name is too long"}, Change{8, "\xFF\xFF\xFF\xFF", "negative"},
        Change{first_span, huge, "ends before it starts"},
        Change{first_span + 32, std::string("\x02\0\0\0", 4), "name is not in the file"},
        Change{first_span + 48, "\x07", "unknown stream"},
        Change{first_span + 49, "\x03", "unknown stream or message end"}}) {
    std::string hostile = body;
    hostile.replace(change.at, change.bytes.size(), change.bytes);
    write_text(folder / "hostile", with_checksum(hostile));
    const std::string message = message_of<RunError>([&] { load_spans(folder / "hostile"); });
    EXPECT_NE(message.find(change.why), message.npos) << change.at << ": " << message;
    EXPECT_NE(message.find("hostile"), message.npos) << message;
  }
}

TEST(SpanFile, AMissingFileIsNamed) {
  const std::string message = message_of<RunError>([] { load_spans("/nonexistent/rank0.spans"); });
  EXPECT_NE(message.find("/nonexistent/rank0.spans"), message.npos) << message;
}

TEST(SpanFile, AFailedSaveLeavesNothing) {
  const TemporaryFolder folder;
  EXPECT_THROW(sample_recorder().save(folder / "absent/rank3.spans"), RunError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Clock, Advances) {
  const int64_t before = monotonic_ns();
  const int64_t after = monotonic_ns();
  EXPECT_GT(before, 0);
  EXPECT_LE(before, after);
}

}  // namespace
}  // namespace lockstep::observe
