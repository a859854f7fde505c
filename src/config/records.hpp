// Lists of inline tables, as `simulate.slow = [{ rank = 7, factor = 1.3 }]`, and the structures they fill.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "config/schema.hpp"
#include "config/value.hpp"

namespace lockstep::config {

// A structure's numbers, in the order of its key's fields.
std::vector<double> numbers_of(const CurvePoint& point);
std::vector<double> numbers_of(const TimedTransfer& transfer);
std::vector<double> numbers_of(const SlowRank& slow);
void set_numbers(CurvePoint& point, const std::vector<double>& numbers);
void set_numbers(TimedTransfer& transfer, const std::vector<double>& numbers);
void set_numbers(SlowRank& slow, const std::vector<double>& numbers);

// The numbers of each record, in the order of `fields`. `value` has passed check_records.
std::vector<std::vector<double>> record_numbers(const std::vector<RecordField>& fields, const Value& value);
Value record_value(const std::vector<RecordField>& fields, const std::vector<std::vector<double>>& numbers);

Verdict check_records(const std::vector<RecordField>& fields, const Value& value);

template <class Entry>
Value read_records(const std::vector<RecordField>& fields, const std::vector<Entry>& entries) {
  std::vector<std::vector<double>> numbers;
  // A timed message has no number of ranks, and a field less.
  for (const Entry& entry : entries) {
    const std::vector<double> all = numbers_of(entry);
    numbers.emplace_back(all.end() - static_cast<std::ptrdiff_t>(fields.size()), all.end());
  }
  return record_value(fields, numbers);
}

template <class Entry>
void write_records(const std::vector<RecordField>& fields, const Value& value, std::vector<Entry>& entries) {
  entries.clear();
  for (const std::vector<double>& given : record_numbers(fields, value)) {
    Entry entry;
    std::vector<double> numbers = numbers_of(entry);
    std::copy(given.begin(), given.end(), numbers.end() - static_cast<std::ptrdiff_t>(given.size()));
    set_numbers(entry, numbers);
    entries.push_back(entry);
  }
}

}  // namespace lockstep::config
