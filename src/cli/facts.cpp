// lockstep facts
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/modelled_run.hpp"
#include "cli/output.hpp"
#include "facts/report.hpp"

namespace lockstep::cli {

namespace {

lockstep::facts::Language language_of(const std::string& name) {
  if (name == "en") return lockstep::facts::Language::en;
  if (name == "zh") return lockstep::facts::Language::zh;
  throw UsageError(fmt::format("--lang {}: there are en and zh", name));
}

}  // namespace

int facts(const Arguments& arguments) {
  namespace room = lockstep::facts;
  std::string language_name = "en", id;
  bool markdown = false, json = false;
  Flags flags("facts", "lockstep facts --explain bubble");
  flags
      .text(id, "--explain", "ID",
            "one claim with formula, inputs, source and the command that reproduces it")
      .text(language_name, "--lang", "LANGUAGE", "en, or zh for Chinese")
      .toggle(markdown, "--markdown", "a page of tables")
      .toggle(json, "--json", "one JSON document on standard output");
  if (!flags.parse(arguments)) return exit_ok;
  const room::Language language = language_of(language_name);
  if (markdown && json) throw UsageError("--markdown and --json: give one of them");
  if (markdown && !id.empty()) throw UsageError("--markdown is of all claims: leave out --explain");

  const std::vector<room::Fact> all = room::compute_facts();
  if (!id.empty()) {
    const room::Fact& fact = room::find_fact(all, id);
    if (json) {
      print_json(room::explanation_json(fact, language));
    } else {
      print(room::explanation(fact, language, text_style()));
    }
  } else if (json) {
    print_json(room::facts_json(all, language));
  } else {
    print(markdown ? room::facts_markdown(all, language) : room::facts_text(all, language, text_style()));
  }
  return exit_ok;
}

}  // namespace lockstep::cli
