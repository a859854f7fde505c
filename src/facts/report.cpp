#include "facts/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/terminal_text.hpp"

namespace lockstep::facts {

namespace {

constexpr size_t width = terminal_columns;

const std::string& say(const Words& words, Language language) {
  return language == Language::zh ? words.zh : words.en;
}

Words verdict_words(Verdict verdict) {
  constexpr std::array<const char*, 4> zh = {"成立", "不符", "自相矛盾", "公开数据"};
  return {std::string(to_string(verdict)), zh[static_cast<size_t>(verdict)]};
}

// Of one that nothing was computed for it says so.
std::string verdict_text(const Fact& fact, Language language) {
  const std::string word = say(verdict_words(fact.verdict()), language);
  if (fact.way != Way::stated) return word;
  return word + (language == Language::zh ? "（据说法）" : ", as stated");
}

const char* mark(Verdict verdict) {
  constexpr std::array<const char*, 4> marks = {"✓", "✗", "≠", "·"};
  return marks[static_cast<size_t>(verdict)];
}

std::string painted(Verdict verdict, const std::string& text, const cost::Style& style) {
  if (verdict == Verdict::published) return style.dim(text);
  return style.paint(verdict == Verdict::holds ? "good" : "bad", text);
}

std::string left(const std::string& text, size_t most) {
  return text + std::string(std::max(most, columns(text)) - columns(text), ' ');
}
std::string right(const std::string& text, size_t most) {
  return std::string(std::max(most, columns(text)) - columns(text), ' ') + text;
}

std::string difference_text(const Fact& fact) {
  const std::optional<double> share = fact.difference();
  if (!share) return "";
  if (std::abs(*share) < 0.00005) return "0";
  if (std::abs(*share) < 0.0005) return fmt::format("{:+.2f} %", 100 * *share);
  if (std::abs(*share) < 0.0995) return fmt::format("{:+.1f} %", 100 * *share);
  return fmt::format("{:+.0f} %", 100 * *share);
}

// Verdicts of what was computed, and apart from them what was not.
std::string counted(const std::vector<Fact>& facts, Language language) {
  std::array<int, 4> counts{};
  int computed = 0, stated = 0;
  for (const Fact& fact : facts) {
    const Verdict verdict = fact.verdict();
    const bool judged_by_statements = fact.way == Way::stated;
    stated += judged_by_statements ? 1 : 0;
    computed += verdict != Verdict::published && !judged_by_statements ? 1 : 0;
    counts[static_cast<size_t>(verdict)] += judged_by_statements ? 0 : 1;
  }
  if (language == Language::zh) {
    return fmt::format(
        "关于 Llama 3 405B 训练的 {} 条公开说法。{} 条用本程序的函数重算：{} 条成立，{} 条不符，{} "
        "条自相矛盾；{} "
        "条只据其定义或他处的说法判断，未计算；{} 条为无法推导的公开数据。",
        facts.size(), computed, counts[0], counts[1], counts[2], stated, counts[3]);
  }
  return fmt::format(
      "{} public claims about the training of Llama 3 405B. {} are computed anew: {} hold, {} are off, {} "
      "are "
      "inconsistent; {} are judged by their definition or by what is stated elsewhere, nothing computed; {} "
      "are "
      "published figures that cannot be derived.",
      facts.size(), computed, counts[0], counts[1], counts[2], stated, counts[3]);
}

const Words rule = {
    "A claim holds when the computed value is within one unit of the last digit stated, with \"about\" "
    "within "
    "10 %; it is inconsistent when another statement of the same source, or the paper itself, contradicts "
    "it.",
    "计算值与所述末位数字相差不超过一个单位即为成立（“约”则为 10 "
    "%）；与同一来源或论文自身的其他说法矛盾即为自相矛盾。"};
const Words experts = {"Llama 3 has no experts: the fifth axis, expert parallelism, is absent here.",
                       "Llama 3 没有专家：这里不出现第五维，即专家并行。"};
const Words ways = {
    "`lockstep facts --explain ID` shows formula, inputs, source and the command that reproduces it.",
    "`lockstep facts --explain ID` 给出公式、输入、来源与复现命令。"};

std::string sources_line(Language language) {
  std::string out;
  for (const SourceName& source : source_names()) {
    out += fmt::format("{}{}: {}",
                       out.empty()                ? ""
                       : language == Language::zh ? "；"
                                                  : "; ",
                       source.letter, say(source.name, language));
  }
  return out + (language == Language::zh ? "。" : ".");
}

void add_wrapped(std::string& out, const std::string& text, size_t indent, const cost::Style* dim) {
  for (const std::string& line : wrapped(text, width - indent)) {
    out += std::string(indent, ' ') + (dim != nullptr ? dim->dim(line) : line) + "\n";
  }
}

std::vector<std::string> heads(Language language) {
  if (language == Language::zh) return {"编号", "说法", "所述", "计算", "相差", "结论", "缘由"};
  return {"id", "claim", "stated", "computed", "difference", "verdict", "why"};
}

std::string figures_line(const std::string& id, const std::string& stated, const std::string& computed,
                         const std::string& difference) {
  return left(id, 15) + right(stated, 20) + right(computed, 24) + right(difference, 11) + "   ";
}

// How the computed value came about.
Words origin(const Fact& fact) {
  if (fact.verdict() == Verdict::published) return {"published", "公开"};
  if (fact.way == Way::simulated) return {"simulated", "模拟"};
  if (fact.way == Way::stated) return {"as stated, not computed", "据说法，未计算"};
  return {"computed", "计算"};
}

// Cells of a Markdown table hold no bars.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  return text;
}

Json value_of(const std::vector<Figure>& figures, double (*get)(const Figure&), const std::string& words) {
  if (figures.empty()) return words.empty() ? Json(nullptr) : Json(words);
  if (figures.size() == 1) return get(figures.front());
  Json list = Json::array();
  for (const Figure& figure : figures) list.push_back(get(figure));
  return list;
}

}  // namespace

std::string facts_text(const std::vector<Fact>& facts, Language language, const cost::Style& style) {
  const std::vector<std::string> names = heads(language);
  std::string out;
  add_wrapped(out, counted(facts, language), 0, nullptr);
  out += "\n" + style.dim("    " + figures_line(names[0], names[2], names[3], names[4]) + names[5]) + "\n";
  std::optional<Group> group;
  for (const Fact& fact : facts) {
    if (group != fact.group) {
      group = fact.group;
      out += "\n" + style.bold(say(title(*group), language)) + "\n";
    }
    const Verdict verdict = fact.verdict();
    out += fmt::format(
        "  {} {}{}\n", painted(verdict, mark(verdict), style),
        figures_line(fact.id, say(fact.stated, language), say(fact.shown, language), difference_text(fact)),
        painted(verdict, verdict_text(fact, language), style));
    add_wrapped(out,
                fmt::format("{} ({}; {})", say(fact.claim, language), fmt::join(fact.sources, ", "),
                            say(origin(fact), language)),
                4, nullptr);
    add_wrapped(out, say(fact.why, language), 4, &style);
  }
  out += "\n";
  for (const std::string& line :
       {sources_line(language), say(rule, language), say(experts, language), say(ways, language)}) {
    add_wrapped(out, line, 0, &style);
  }
  return out;
}

std::string facts_markdown(const std::vector<Fact>& facts, Language language) {
  const std::vector<std::string> names = heads(language);
  std::string out = language == Language::zh ? "# 核对公开说法\n\n" : "# Claims, checked\n\n";
  const std::string command =
      fmt::format("lockstep facts --markdown{}", language == Language::zh ? " --lang zh" : "");
  out += counted(facts, language) + "\n" +
         (language == Language::zh ? fmt::format("本页由 `{}` 生成。\n", command)
                                   : fmt::format("`{}` writes this page.\n", command));
  out += "\n" + sources_line(language) + "\n" + say(rule, language) + "\n" + say(experts, language) + "\n" +
         say(ways, language) + "\n";
  std::optional<Group> group;
  for (const Fact& fact : facts) {
    if (group != fact.group) {
      group = fact.group;
      out += fmt::format("\n## {}\n\n| {} |\n| --- | --- | ---: | ---: | ---: | --- | --- |\n",
                         say(title(*group), language), fmt::join(names, " | "));
    }
    out += fmt::format("| `{}` | {} ({}; {}) | {} | {} | {} | {} | {} |\n", fact.id,
                       cell(say(fact.claim, language)), fmt::join(fact.sources, ", "),
                       say(origin(fact), language), cell(say(fact.stated, language)),
                       cell(say(fact.shown, language)), difference_text(fact), verdict_text(fact, language),
                       cell(say(fact.why, language)));
  }
  return out;
}

Json facts_json(const std::vector<Fact>& facts, Language language) {
  Json list = Json::array();
  for (const Fact& fact : facts) {
    Json one;
    one["id"] = fact.id;
    one["claim"] = say(fact.claim, language);
    const bool in_words = std::any_of(fact.figures.begin(), fact.figures.end(),
                                      [](const Figure& f) { return f.stated.in_words; });
    const auto stated = [](const Figure& f) { return f.stated.value; };
    const auto computed = [](const Figure& f) { return f.computed; };
    one["stated"] =
        value_of(in_words ? std::vector<Figure>{} : fact.figures, stated, say(fact.stated, language));
    one["computed"] = value_of(fact.figures, computed, say(fact.shown, language));
    one["unit"] = fact.unit;
    one["verdict"] = std::string(to_string(fact.verdict()));
    one["why"] = say(fact.why, language);
    const std::optional<double> difference = fact.difference();
    one["difference"] = difference ? Json(*difference) : Json(nullptr);
    one["stated_as"] = say(fact.stated, language);
    one["group"] = say(title(fact.group), language);
    one["sources"] = fact.sources;
    one["origin"] = origin(fact).en;
    list.push_back(std::move(one));
  }
  return list;
}

std::string explanation(const Fact& fact, Language language, const cost::Style& style) {
  const bool zh = language == Language::zh;
  const Verdict verdict = fact.verdict();
  std::string out = fmt::format("{} {}   {}\n", painted(verdict, mark(verdict), style), style.bold(fact.id),
                                painted(verdict, verdict_text(fact, language), style));
  add_wrapped(out, say(fact.claim, language), 0, nullptr);
  out += "\n";
  const auto row = [&](const char* en, const char* chinese, const std::string& text) {
    if (text.empty()) return;
    bool first = true;
    for (const std::string& line : wrapped(text, width - 14)) {
      out += "  " + style.dim(left(first ? (zh ? chinese : en) : "", 12)) + line + "\n";
      first = false;
    }
  };
  row("stated", "所述", say(fact.stated, language));
  const bool stated = fact.way == Way::stated;
  row(stated ? "against" : "computed", stated ? "对照" : "计算", say(fact.shown, language));
  row("origin", "出处", say(origin(fact), language));
  row("difference", "相差", difference_text(fact));
  row("formula", "公式", say(fact.formula, language));
  row("inputs", "输入", say(fact.inputs, language));
  row("why", "缘由", say(fact.why, language));
  for (const SourceName& source : source_names()) {
    if (fact.sources.find(source.letter) == std::string::npos) continue;
    row("source", "来源", fmt::format("{}: {}", source.letter, say(source.name, language)));
  }
  // Not broken: it is meant to be copied.
  out += "  " + style.dim(left(zh ? "复现" : "reproduce", 12)) + fact.command + "\n";
  return out;
}

Json explanation_json(const Fact& fact, Language language) {
  Json json = facts_json({fact}, language).front();
  json["formula"] = say(fact.formula, language);
  json["inputs"] = say(fact.inputs, language);
  json["command"] = fact.command;
  return json;
}

const Fact& find_fact(const std::vector<Fact>& facts, const std::string& id) {
  const auto found =
      std::find_if(facts.begin(), facts.end(), [&](const Fact& fact) { return fact.id == id; });
  if (found != facts.end()) return *found;
  std::vector<std::string> ids;
  for (const Fact& fact : facts) ids.push_back(fact.id);
  throw UsageError(
      fmt::format("there is no claim {}; the nearest is {}\n  `lockstep facts` lists all of them", id,
                  nearest_name(id, ids)));
}

}  // namespace lockstep::facts
