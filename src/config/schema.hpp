// Every key of the run file, in one table: its sentence, type, default and rule, and the field it fills.
// Parsing, defaults, suggestions, the resolved file and the printed reference all read this table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/run_file.hpp"
#include "config/value.hpp"

namespace lockstep::config {

// Where a key's value is stored. Nothing (monostate) for a key that is known but not built yet.
using Field = std::variant<std::monostate, int64_t*, double*, bool*, std::string*, std::vector<std::string>*,
                           Architecture*, ScheduleKind*, Dtype*, AttentionKernel*, CrossEntropy*,
                           GradientDtype*, LayerSplit*, GradientScatter*, GatheredInput*, Optimizer*,
                           LearningRateSchedule*, NonFinite*, Topology*, CollectiveAlgorithm*, Curve*,
                           std::vector<TimedTransfer>*, std::vector<SlowRank>*>;

// One number of a record: of an inline table in a list of them.
struct RecordField {
  std::string name;
  double low = 0, high = 1e30;
  bool above_low = false;  // low itself is refused
  bool whole = false;
  bool names_record = false;  // with the others that do, tells records apart; they ascend in these
};

enum class Need { optional, required, required_or_preset };

// What a value must be, beyond its type. Ranges include their ends.
struct Rule {
  double low = -1e15, high = 1e15;                      // numbers
  bool above_low = false;                               // low itself is refused
  std::optional<std::pair<double, double>> built = {};  // the part of the range that is built
  std::vector<std::string> words = {};  // strings (or a list's items) that work; none: any string
  std::vector<std::string> later = {};  // known strings, not built yet
  bool others_later = false;            // any other string than `words` is something not built yet
  bool may_be_empty = false;            // "" is none
  // A list's short forms: a single string, and the list it stands for.
  std::vector<std::pair<std::string, std::vector<std::string>>> short_forms = {};
  bool printable = false;                // a string without control characters, which terminals obey
  bool file_name = false;                // a string of letters, digits and -_. that can name a folder
  std::vector<RecordField> fields = {};  // of the records of a list
};

struct Key {
  std::string table;  // "" before the first table
  std::string name;
  std::string sentence;
  Field (*field)(RunFile&) = nullptr;
  Need need = Need::optional;
  Rule rule = {};

  std::string path() const { return table.empty() ? name : table + "." + name; }
  bool is_built() const;
};

// All keys, tables together, in the order in which they are printed.
const std::vector<Key>& schema();

// The key of that path ("parallel.tp"); null when there is none.
const Key* find_key(std::string_view path);

// Tables of the schema, in order, without "".
std::vector<std::string> schema_tables();

// Tables that are named in the interface and not built yet.
const std::vector<std::string>& later_tables();

// The value that `key` has in `run`, in its shortest form.
Value read_key(const Key& key, const RunFile& run);

// Stores a value that has passed check_value.
void write_key(const Key& key, const Value& value, RunFile& run);

struct Verdict {
  std::string rule;  // the rule that is broken; empty: the value is good
  std::string fix;   // literal of the nearest value that works; empty: none can be named
};

// Type, range, words: whatever can be said about one value without the other keys.
Verdict check_value(const Key& key, const Value& value);

// Path of the known key that was probably meant.
std::string nearest_key(const std::string& table, const std::string& name);

// The whole reference as text: every table and key with type, default, rule and sentence.
std::string describe_schema();

}  // namespace lockstep::config
