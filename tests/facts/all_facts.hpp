// The claims, computed once for all tests.
#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "facts/fact.hpp"

namespace lockstep::facts {

inline const std::vector<Fact>& all_facts() {
  static const std::vector<Fact> facts = compute_facts();
  return facts;
}

inline const Fact& find(const std::string& id) {
  for (const Fact& fact : all_facts()) {
    if (fact.id == id) return fact;
  }
  throw std::out_of_range("no claim " + id);
}

// The numbers in a text, commas between thousands allowed.
inline std::vector<double> numbers(const std::string& text) {
  static const std::regex number(R"([0-9][0-9,]*(\.[0-9]+)?(e[0-9]+)?)");
  std::vector<double> out;
  for (std::sregex_iterator it(text.begin(), text.end(), number), end; it != end; ++it) {
    std::string plain = it->str();
    std::erase(plain, ',');
    out.push_back(std::stod(plain));
  }
  return out;
}

}  // namespace lockstep::facts
