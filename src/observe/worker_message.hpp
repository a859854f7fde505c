// What a worker tells the launcher over its pipe: one JSON object a line. Doubles read back exactly; NaN and
// the infinities, which JSON lacks, travel as the strings "nan", "inf", "-inf".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "observe/step_record.hpp"

namespace lockstep::observe {

struct ReadyMessage {  // set up, about to take the first step
  int rank = 0;
};
// What a worker's step waited for and held; every rank sends one after each step, before rank 0's of the
// next.
struct WaitMessage {
  int rank = 0;
  int64_t step = 0;
  StepWaits waits;
  int64_t tensor_bytes = 0;    // the most that the worker's tensors took at once during the step
  int64_t resident_bytes = 0;  // the most that the worker's process was resident since it started
};
struct EvaluationMessage {
  int64_t step = 0;  // steps done
  double loss = 0;   // nats a token over the whole held-out part
  int64_t tokens = 0;
};
struct FinalMessage {
  std::array<uint64_t, 2> weights_hash{};  // 128 bits, sent as two strings of 16 hex digits
  double eval_loss = 0;
};
struct ErrorMessage {
  int rank = 0;
  std::string text;
};
// A StepRecord travels without its `waits`, which the launcher makes of all ranks' WaitMessages.
using WorkerMessage = std::variant<ReadyMessage, MatrixPeak, StepRecord, WaitMessage, EvaluationMessage,
                                   FinalMessage, ErrorMessage>;

std::string hash_text(const std::array<uint64_t, 2>& hash);  // 32 hex digits

inline constexpr size_t max_message_bytes = 64 * 1024;

// One line with its line feed, at most max_message_bytes: the longer text of an error or of a skipped step is
// cut and ends in " [cut]". Bytes of a text that are not valid UTF-8 become U+FFFD.
std::string encode(const WorkerMessage& message);

// The reverse, without the line feed. RunError quotes a line that is not a message, or has a key missing,
// unknown or of the wrong type.
WorkerMessage decode(std::string_view line);

// Writes the whole message, over however many write() calls it takes. RunError when the other end is gone
// (the caller ignores SIGPIPE).
void send_message(int file_descriptor, const WorkerMessage& message);

// Cuts a byte stream into lines, however the bytes arrive.
class LineReader {
 public:
  explicit LineReader(size_t max_line_bytes = max_message_bytes) : max_line_bytes_(max_line_bytes) {}

  // Adds bytes. RunError when a line, its line feed included, grows past the limit.
  void feed(std::string_view bytes);

  // One read() of what is there (blocks on a blocking descriptor that has nothing). False at the end of the
  // stream; true also when a non-blocking descriptor has nothing now.
  bool read_from(int file_descriptor);

  // The next whole line without its line feed, or nothing yet.
  std::optional<std::string> next();

  // Bytes after the last line feed: what a sender that died left unfinished.
  std::string_view unfinished() const;

 private:
  size_t max_line_bytes_;
  std::string buffer_;
  size_t begin_ = 0;  // of the first line not yet taken
  size_t line_begin_ =
      0;  // of the unfinished line at the end; there are whole lines in [begin_, line_begin_)
};

}  // namespace lockstep::observe
