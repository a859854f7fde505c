#include "config/records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace lockstep::config {
namespace {

std::string field_rule(const RecordField& field) {
  return fmt::format("{} {} {}{} and at most {}", field.name, field.whole ? "an integer" : "a number",
                     field.above_low ? "above " : "from ", field.low, field.high);
}

std::string records_rule(const std::vector<RecordField>& fields) {
  std::string out = "must be a list of {";
  std::string ordered;
  for (const RecordField& field : fields) {
    if (&field != &fields.front()) out += ", ";
    out += field_rule(field);
    if (field.names_record) ordered += (ordered.empty() ? "" : ", ") + field.name;
  }
  return out + "}, ascending in " + ordered + ", each once";
}

bool is_good(const RecordField& field, double value) {
  const bool above = field.above_low ? value > field.low : value >= field.low;
  return above && value <= field.high && (!field.whole || value == std::trunc(value));
}

// Numbers of a record in the order of `fields`; nothing when one is missing, unknown or out of range.
std::optional<std::vector<double>> good_numbers(const std::vector<RecordField>& fields,
                                                const Record& record) {
  if (record.size() != fields.size()) return std::nullopt;
  std::vector<double> numbers;
  for (const RecordField& field : fields) {
    const auto found = std::find_if(record.begin(), record.end(),
                                    [&](const auto& entry) { return entry.first == field.name; });
    if (found == record.end() || !is_good(field, found->second)) return std::nullopt;
    numbers.push_back(found->second);
  }
  return numbers;
}

// Whether a record comes before another in the fields that name it.
bool is_before(const std::vector<RecordField>& fields, const std::vector<double>& a,
               const std::vector<double>& b) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].names_record && a[i] != b[i]) return a[i] < b[i];
  }
  return false;
}

}  // namespace

std::vector<double> numbers_of(const CurvePoint& point) { return {point.at, point.value}; }
std::vector<double> numbers_of(const TimedTransfer& t) {
  return {static_cast<double>(t.ranks), t.bytes, t.seconds};
}
std::vector<double> numbers_of(const SlowRank& slow) { return {static_cast<double>(slow.rank), slow.factor}; }

void set_numbers(CurvePoint& point, const std::vector<double>& numbers) { point = {numbers[0], numbers[1]}; }
void set_numbers(TimedTransfer& t, const std::vector<double>& numbers) {
  t = {static_cast<int64_t>(numbers[0]), numbers[1], numbers[2]};
}
void set_numbers(SlowRank& slow, const std::vector<double>& numbers) {
  slow = {static_cast<int64_t>(numbers[0]), numbers[1]};
}

std::vector<std::vector<double>> record_numbers(const std::vector<RecordField>& fields, const Value& value) {
  std::vector<std::vector<double>> out;
  const Records* records = std::get_if<Records>(&value);
  if (records == nullptr) return out;  // an empty list
  for (const Record& record : *records) out.push_back(good_numbers(fields, record).value());
  return out;
}

Value record_value(const std::vector<RecordField>& fields, const std::vector<std::vector<double>>& numbers) {
  Records records;
  for (const std::vector<double>& one : numbers) {
    Record record;
    for (size_t i = 0; i < fields.size(); ++i) record.push_back({fields[i].name, one[i]});
    records.push_back(std::move(record));
  }
  return records;
}

Verdict check_records(const std::vector<RecordField>& fields, const Value& value) {
  const auto* words = std::get_if<std::vector<std::string>>(&value);
  if (words != nullptr && words->empty()) return {};
  const Records* records = std::get_if<Records>(&value);
  if (records == nullptr) return {records_rule(fields), "[]"};
  std::vector<std::vector<double>> good;
  for (const Record& record : *records) {
    if (const auto numbers = good_numbers(fields, record)) good.push_back(*numbers);
  }
  const auto before = [&](const auto& a, const auto& b) { return is_before(fields, a, b); };
  const auto stands_after_next = [&](const auto& a, const auto& b) { return !before(a, b); };
  const bool ordered = std::adjacent_find(good.begin(), good.end(), stands_after_next) == good.end();
  if (ordered && good.size() == records->size()) return {};
  std::stable_sort(good.begin(), good.end(), before);
  good.erase(std::unique(good.begin(), good.end(), stands_after_next), good.end());
  return {records_rule(fields), to_literal(record_value(fields, good))};
}

}  // namespace lockstep::config
