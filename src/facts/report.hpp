// What `lockstep facts` prints.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.hpp"
#include "cost/text.hpp"
#include "facts/fact.hpp"

namespace lockstep::facts {

enum class Language : uint8_t { en, zh };

// At most 100 columns, a Chinese character counted as two: a line of figures, claim, reason; group by group.
std::string facts_text(const std::vector<Fact>& facts, Language language, const cost::Style& style);
// A page with a table a group.
std::string facts_markdown(const std::vector<Fact>& facts, Language language);
// A list of `id claim stated computed unit verdict why difference stated_as group sources origin`. `stated`
// and `computed` are numbers, lists where a claim has several, words where there is no number, null where
// there is nothing; `difference` is a share, or null.
Json facts_json(const std::vector<Fact>& facts, Language language);
// One claim with formula, inputs, source and the command that reproduces it.
std::string explanation(const Fact& fact, Language language, const cost::Style& style);
Json explanation_json(const Fact& fact, Language language);

// The claim of that id; UsageError names the nearest.
const Fact& find_fact(const std::vector<Fact>& facts, const std::string& id);

}  // namespace lockstep::facts
