#include "observe/worker_message.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "base/json.hpp"

namespace lockstep::observe {
namespace {

constexpr std::string_view cut_mark = " [cut]";

// Each message's fields in one list, walked by the writer and by the reader.
template <typename M, typename Visit>
void for_each_field(M& m, const Visit& visit) {
  using Message = std::remove_const_t<M>;
  if constexpr (std::is_same_v<Message, ReadyMessage>) {
    visit("rank", m.rank);
  } else if constexpr (std::is_same_v<Message, StepRecord>) {
    visit("step", m.step);
    visit("steps", m.steps);
    visit("loss", m.loss);
    visit("grad_norm", m.grad_norm);
    visit("lr", m.lr);
    visit("tokens", m.tokens);
    visit("seconds", m.seconds);
    visit("memory_bytes", m.memory_bytes);
    visit("tokens_per_second", m.tokens_per_second);
    visit("tflops", m.tflops);
    visit("mfu", m.mfu);
    visit("mfu_causal", m.mfu_causal);
    visit("eta_seconds", m.eta_seconds);
    visit("skipped", m.skipped);
    visit("trouble", m.trouble);
  } else if constexpr (std::is_same_v<Message, MatrixPeak>) {
    visit("flops", m.flops);
    visit("cores", m.cores);
  } else if constexpr (std::is_same_v<Message, WaitMessage>) {
    visit("rank", m.rank);
    visit("step", m.step);
    visit("exposed", m.waits.exposed);
    visit("under_way", m.waits.under_way);
    visit("tensor_bytes", m.tensor_bytes);
    visit("resident_bytes", m.resident_bytes);
  } else if constexpr (std::is_same_v<Message, EvaluationMessage>) {
    visit("step", m.step);
    visit("loss", m.loss);
    visit("tokens", m.tokens);
  } else if constexpr (std::is_same_v<Message, FinalMessage>) {
    visit("weights_hash", m.weights_hash);
    visit("eval_loss", m.eval_loss);
  } else {
    visit("rank", m.rank);
    visit("text", m.text);
  }
}

constexpr const char* kind_name(const ReadyMessage*) { return "ready"; }
constexpr const char* kind_name(const MatrixPeak*) { return "matrix_peak"; }
constexpr const char* kind_name(const StepRecord*) { return "step"; }
constexpr const char* kind_name(const WaitMessage*) { return "waits"; }
constexpr const char* kind_name(const EvaluationMessage*) { return "evaluation"; }
constexpr const char* kind_name(const FinalMessage*) { return "final"; }
constexpr const char* kind_name(const ErrorMessage*) { return "error"; }

Json to_json(int64_t value) { return value; }
Json to_json(int value) { return value; }
Json to_json(bool value) { return value; }
Json to_json(const std::string& value) { return value; }
Json to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}
Json to_json(const std::array<uint64_t, 2>& words) {
  return Json::array({fmt::format("{:016x}", words[0]), fmt::format("{:016x}", words[1])});
}
Json to_json(const ExposedSeconds& s) {  // tp, cp, pp, dp
  return Json::array({to_json(s.tp), to_json(s.cp), to_json(s.pp), to_json(s.dp)});
}

template <typename Integer>
bool integer_from_json(const Json& json, Integer& value) {
  if (!json.is_number_integer()) return false;
  if (json.is_number_unsigned()) {
    const auto number = json.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<Integer>::max())) return false;
    value = static_cast<Integer>(number);
    return true;
  }
  const auto number = json.get<int64_t>();
  if (number < std::numeric_limits<Integer>::min()) return false;  // negative: cannot be too large
  value = static_cast<Integer>(number);
  return true;
}

bool from_json(const Json& json, int64_t& value) { return integer_from_json(json, value); }
bool from_json(const Json& json, int& value) { return integer_from_json(json, value); }
bool from_json(const Json& json, bool& value) {
  if (!json.is_boolean()) return false;
  value = json.get<bool>();
  return true;
}
bool from_json(const Json& json, std::string& value) {
  if (!json.is_string()) return false;
  value = json.get<std::string>();
  return true;
}
bool from_json(const Json& json, double& value) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (json.is_number()) {
    value = json.get<double>();
  } else if (json == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (json == "inf" || json == "-inf") {
    value = json == "inf" ? infinity : -infinity;
  } else {
    return false;
  }
  return true;
}
bool from_json(const Json& json, std::array<uint64_t, 2>& words) {
  if (!json.is_array() || json.size() != words.size()) return false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!json[i].is_string()) return false;
    const auto& digits = json[i].get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), words[i], 16);
    if (digits.size() != 16 || error != std::errc() || end != digits.data() + digits.size()) return false;
  }
  return true;
}

bool from_json(const Json& json, ExposedSeconds& s) {
  return json.is_array() && json.size() == 4 && from_json(json[0], s.tp) && from_json(json[1], s.cp) &&
         from_json(json[2], s.pp) && from_json(json[3], s.dp);
}

[[noreturn]] void fail(std::string_view line, std::string_view why) {
  throw RunError(
      fmt::format("a worker sent a line that is not a message ({}): {}", why, line.substr(0, 200)));
}

template <typename M>
M read_fields(const Json& json, std::string_view line) {
  M message;
  std::set<std::string> known = {"kind"};
  for_each_field(message, [&](const char* key, auto& field) {
    known.insert(key);
    const auto at = json.find(key);
    if (at == json.end()) fail(line, fmt::format("{} is missing", key));
    if (!from_json(*at, field)) fail(line, fmt::format("{} has a wrong value", key));
  });
  for (const auto& item : json.items()) {
    if (known.count(item.key()) == 0) fail(line, fmt::format("{} is unknown", item.key()));
  }
  return message;
}

template <typename... M>
WorkerMessage decode_as(const Json& json, std::string_view line, const std::string& kind,
                        const std::variant<M...>*) {
  std::optional<WorkerMessage> message;
  ((kind == kind_name(static_cast<const M*>(nullptr)) ? void(message = read_fields<M>(json, line)) : void()),
   ...);
  if (!message) fail(line, "its kind is unknown");
  return *message;
}

std::string encode_whole(const WorkerMessage& message) {
  return std::visit(
      [](const auto& m) {
        Json json;
        json["kind"] = kind_name(&m);
        for_each_field(m, [&](const char* key, const auto& field) { json[key] = to_json(field); });
        return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
      },
      message);
}

}  // namespace

std::string hash_text(const std::array<uint64_t, 2>& hash) {
  return fmt::format("{:016x}{:016x}", hash[0], hash[1]);
}

std::string encode(const WorkerMessage& message) {
  std::string line = encode_whole(message);
  if (line.size() <= max_message_bytes) return line;
  // Only the texts of errors and troubles have no bound. A byte of one may take six in JSON ("\u001f").
  WorkerMessage shorter = message;
  auto* step = std::get_if<StepRecord>(&shorter);
  std::string& text = step != nullptr ? step->trouble : std::get<ErrorMessage>(shorter).text;
  text.resize((max_message_bytes - 1000) / 6);
  text += cut_mark;
  return encode_whole(shorter);
}

WorkerMessage decode(std::string_view line) {
  const Json json = Json::parse(line.begin(), line.end(), nullptr, false);
  if (!json.is_object()) fail(line, "not a JSON object");
  const auto kind = json.find("kind");
  if (kind == json.end() || !kind->is_string()) fail(line, "kind is missing");
  return decode_as(json, line, kind->get<std::string>(), static_cast<const WorkerMessage*>(nullptr));
}

void send_message(int file_descriptor, const WorkerMessage& message) {
  const std::string line = encode(message);
  std::string_view left = line;
  while (!left.empty()) {
    const ssize_t written = ::write(file_descriptor, left.data(), left.size());
    if (written >= 0) {
      left.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd full{file_descriptor, POLLOUT, 0};
      ::poll(&full, 1, -1);
    } else if (errno != EINTR) {
      throw RunError(fmt::format("cannot write to the launcher: {}", std::strerror(errno)));
    }
  }
}

void LineReader::feed(std::string_view bytes) {
  buffer_.erase(0, begin_);
  line_begin_ -= begin_;
  begin_ = 0;
  const size_t old_size = buffer_.size();
  buffer_.append(bytes);
  for (size_t at = old_size; at < buffer_.size(); ++at) {
    if (buffer_[at] == '\n') {
      line_begin_ = at + 1;
    } else if (at - line_begin_ + 1 >= max_line_bytes_) {
      throw RunError(fmt::format("a worker sent a line of more than {} bytes: {}", max_line_bytes_,
                                 std::string_view(buffer_).substr(line_begin_, 100)));
    }
  }
}

bool LineReader::read_from(int file_descriptor) {
  std::array<char, 16384> bytes;
  for (;;) {
    const ssize_t got = ::read(file_descriptor, bytes.data(), bytes.size());
    if (got > 0) feed(std::string_view(bytes.data(), static_cast<size_t>(got)));
    if (got >= 0) return got > 0;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
    if (errno != EINTR) throw RunError(fmt::format("cannot read from a worker: {}", std::strerror(errno)));
  }
}

std::optional<std::string> LineReader::next() {
  if (begin_ == line_begin_) return std::nullopt;
  const size_t end = buffer_.find('\n', begin_);
  std::string line = buffer_.substr(begin_, end - begin_);
  begin_ = end + 1;
  return line;
}

std::string_view LineReader::unfinished() const { return std::string_view(buffer_).substr(line_begin_); }

}  // namespace lockstep::observe
