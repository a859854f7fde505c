#include "config/schema.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/edit_distance.hpp"
#include "config/names.hpp"
#include "config/records.hpp"

namespace lockstep::config {
namespace {

Value short_form(const Rule& rule, const std::vector<std::string>& list) {
  for (const auto& [word, stands_for] : rule.short_forms) {
    if (list == stands_for) return word;
  }
  return list;
}

struct Read {
  const Rule& rule;

  Value operator()(std::monostate) const { return OtherValue{"not built yet"}; }
  Value operator()(const std::vector<std::string>* field) const { return short_form(rule, *field); }
  Value operator()(const int64_t* field) const { return *field; }
  Value operator()(const double* field) const { return *field; }
  Value operator()(const bool* field) const { return *field; }
  Value operator()(const std::string* field) const { return *field; }
  template <class Entry>
  Value operator()(const std::vector<Entry>* field) const {
    return read_records(rule.fields, *field);
  }
  template <class Enum>
  Value operator()(const Enum* field) const {
    return std::string(names_of(*field).at(static_cast<size_t>(*field)));
  }
};

struct Write {
  const Rule& rule;
  const Value& value;

  void operator()(std::monostate) const {}
  void operator()(int64_t* field) const { *field = std::get<int64_t>(value); }
  void operator()(bool* field) const { *field = std::get<bool>(value); }
  void operator()(std::string* field) const { *field = std::get<std::string>(value); }
  void operator()(double* field) const {
    const int64_t* whole = std::get_if<int64_t>(&value);
    *field = whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
  }
  void operator()(std::vector<std::string>* field) const {
    const std::string* word = std::get_if<std::string>(&value);
    if (word == nullptr) {
      *field = std::get<std::vector<std::string>>(value);
      return;
    }
    for (const auto& [form, stands_for] : rule.short_forms) {
      if (form == *word) *field = stands_for;
    }
  }
  template <class Entry>
  void operator()(std::vector<Entry>* field) const {
    write_records(rule.fields, value, *field);
  }
  template <class Enum>
  void operator()(Enum* field) const {
    const auto& names = names_of(*field);
    const auto found = std::find(names.begin(), names.end(), std::get<std::string>(value));
    *field = static_cast<Enum>(found - names.begin());
  }
};

}  // namespace

bool Key::is_built() const {
  RunFile run;
  return !std::holds_alternative<std::monostate>(field(run));
}

const Key* find_key(std::string_view path) {
  for (const Key& key : schema()) {
    if (key.path() == path) return &key;
  }
  return nullptr;
}

std::vector<std::string> schema_tables() {
  std::vector<std::string> tables;
  for (const Key& key : schema()) {
    if (!key.table.empty() && (tables.empty() || tables.back() != key.table)) tables.push_back(key.table);
  }
  return tables;
}

Value read_key(const Key& key, const RunFile& run) {
  // The accessor serves reading and writing; nothing is written through it here.
  return std::visit(Read{key.rule}, key.field(const_cast<RunFile&>(run)));
}

void write_key(const Key& key, const Value& value, RunFile& run) {
  std::visit(Write{key.rule, value}, key.field(run));
}

std::string nearest_key(const std::string& table, const std::string& name) {
  std::string nearest;
  size_t least = SIZE_MAX;
  for (const Key& key : schema()) {
    // A key put into the wrong table is one slip, as is a wrong letter.
    const size_t distance = 2 * edit_distance(name, key.name) + (key.table == table ? 0 : 1);
    if (distance < least) {
      least = distance;
      nearest = key.path();
    }
  }
  return nearest;
}

const char* to_string(Architecture value) { return names_of(value).at(static_cast<size_t>(value)); }
const char* to_string(ScheduleKind value) { return names_of(value).at(static_cast<size_t>(value)); }
const char* to_string(Dtype value) { return names_of(value).at(static_cast<size_t>(value)); }
const char* to_string(AttentionKernel value) { return names_of(value).at(static_cast<size_t>(value)); }
const char* to_string(CrossEntropy value) { return names_of(value).at(static_cast<size_t>(value)); }
const char* to_string(GradientDtype value) { return names_of(value).at(static_cast<size_t>(value)); }
const char* to_string(LayerSplit value) { return names_of(value).at(static_cast<size_t>(value)); }
const char* to_string(GradientScatter value) { return names_of(value).at(static_cast<size_t>(value)); }
const char* to_string(GatheredInput value) { return names_of(value).at(static_cast<size_t>(value)); }
const char* to_string(Optimizer value) { return names_of(value).at(static_cast<size_t>(value)); }
const char* to_string(LearningRateSchedule value) { return names_of(value).at(static_cast<size_t>(value)); }
const char* to_string(NonFinite value) { return names_of(value).at(static_cast<size_t>(value)); }
const char* to_string(Topology value) { return names_of(value).at(static_cast<size_t>(value)); }
const char* to_string(CollectiveAlgorithm value) { return names_of(value).at(static_cast<size_t>(value)); }

}  // namespace lockstep::config
