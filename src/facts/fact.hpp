// Claims about the training of Llama 3 405B, each beside what Lockstep's own functions make of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::facts {

struct Words {
  std::string en, zh;
};
// What both languages write alike: symbols and figures.
inline Words same(std::string text) { return {text, std::move(text)}; }

enum class Verdict : uint8_t {
  holds,         // within one unit of the last digit stated; with "about" within 10 %
  off,           // it is not
  inconsistent,  // it contradicts another statement of the same source
  published,     // measured or announced, cannot be derived
};
std::string_view to_string(Verdict verdict);

// How a claim is judged.
enum class Way : uint8_t {
  computed,   // from functions that plan and simulate use, or by arithmetic on published figures
  simulated,  // from a simulated step
  stated,     // by its own definition, or by what was stated elsewhere: nothing is computed
};

enum class Group : uint8_t { model, layout, network, pipeline, step, failures, power, elsewhere };

// What a source says: a value, and within what a computed one agrees with it.
struct Stated {
  double value = 0;
  double low = 0, high = 0;
  bool in_words = false;  // the source gives no single number: `value` is only in between, or our reading

  bool agrees(double computed) const { return computed >= low && computed <= high; }
};
// `unit`: of the last digit stated. `carried`: what the rounding of stated inputs adds.
Stated digits(double value, double unit, double carried = 0);
Stated about(double value);  // within 10 %
Stated over(double value);   // above it
Stated below(double value);  // below it
Stated between(double low, double high);

// One number of a claim.
struct Figure {
  Stated stated;
  double computed = 0;
};

struct Fact {
  std::string id;
  Group group = Group::model;
  std::string sources;  // letters as in `source_names`
  Words claim;
  Words stated;                 // as a reader of the source would quote it
  std::vector<Figure> figures;  // in `unit`; empty where there is nothing to compute
  std::string unit;             // "" for plain numbers and ratios
  Words shown;                  // the computed value for a reader
  // Of figures: all agree (holds) or not (off). Set where something else decides.
  std::optional<Verdict> decided;
  Words why;  // one line
  Words formula, inputs;
  std::string command;  // that reproduces it
  Way way = Way::computed;

  Verdict verdict() const;
  // computed / stated - 1 of the figure that is farthest off; none without figures.
  std::optional<double> difference() const;
};

struct SourceName {
  char letter;
  Words name;
};
const std::vector<SourceName>& source_names();
const Words& title(Group group);

// All claims, computed now, group by group. Takes a second: the step is simulated. Throws what the simulator
// throws.
std::vector<Fact> compute_facts();

}  // namespace lockstep::facts
