#include "data/corpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "observe/read_file.hpp"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

bool is_text_file(const fs::path& path) { return path.extension() == ".txt" && fs::is_regular_file(path); }

std::vector<fs::path> list_documents(const fs::path& text) {
  std::error_code error;
  const fs::file_status status = fs::status(text, error);
  if (!fs::exists(status)) {
    throw UsageError(
        fmt::format("data.text = \"{}\": there is no such file or folder. Paths are taken from the folder "
                    "in which the command runs.",
                    text.string()));
  }
  if (!fs::is_directory(status)) {
    if (is_text_file(text)) return {text};
    throw UsageError(fmt::format("data.text = \"{}\": neither a folder nor a .txt file.", text.string()));
  }
  std::vector<fs::path> files;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(text)) {
      if (is_text_file(entry.path())) files.push_back(entry.path());
    }
  } catch (const fs::filesystem_error& failed) {
    throw UsageError(fmt::format("data.text = \"{}\": cannot read the folder: {}.", text.string(),
                                 failed.code().message()));
  }
  if (files.empty()) {
    throw UsageError(
        fmt::format("data.text = \"{}\": the folder has no .txt file. Put each document in one, or name "
                    "another folder.",
                    text.string()));
  }
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) {
    return a.filename().native() < b.filename().native();
  });
  return files;
}

std::string read_document(const fs::path& path) {
  try {
    return observe::read_file(path);
  } catch (const std::system_error& error) {
    throw UsageError(
        fmt::format("{}: cannot read the document: {}. Check its permissions, or take it out of the folder.",
                    path.string(), error.code().message()));
  }
}

std::string without_ending(const std::string& name) {
  return name.ends_with(".txt") ? name.substr(0, name.size() - 4) : name;
}

// The held-out names without ".txt", each known and given once.
std::set<std::string> check_held_out(const CorpusOptions& options, const std::vector<std::string>& names) {
  std::set<std::string> held_out;
  for (const std::string& given : options.held_out) {
    const std::string name = without_ending(given);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw UsageError(fmt::format("data.held_out: \"{}\" is not a document of {}; the nearest is \"{}\".",
                                   given, options.text.string(), nearest_name(name, names)));
    }
    if (!held_out.insert(name).second) {
      throw UsageError(fmt::format("data.held_out: \"{}\" is given twice. Remove one.", given));
    }
  }
  if (held_out.empty() && options.need_held_out) {
    throw UsageError(
        names.size() < 2
            ? fmt::format(
                  "data.text = \"{}\": one document gives no held-out part. Split it into several .txt files "
                  "in a folder and name some in data.held_out.",
                  options.text.string())
            : fmt::format(
                  "data.held_out is empty: name documents of {} to judge the model on, such as \"{}\".",
                  options.text.string(), names.back()));
  }
  if (held_out.size() == names.size()) {
    throw UsageError(fmt::format("data.held_out names all {} documents of {}: leave some to train on.",
                                 names.size(), options.text.string()));
  }
  return held_out;
}

void append_document(TokenStream& stream, const std::string& name, const std::string& text) {
  if (!stream.documents.empty()) stream.tokens.push_back('\n');
  stream.documents.push_back(name);
  stream.document_begins.push_back(static_cast<int64_t>(stream.tokens.size()));
  const std::vector<Token> tokens = ByteTokenizer::encode(text);
  stream.tokens.insert(stream.tokens.end(), tokens.begin(), tokens.end());
}

void check_length(const TokenStream& stream, const char* part, int64_t sequence) {
  const auto tokens = static_cast<int64_t>(stream.tokens.size());
  if (tokens > sequence) return;
  const std::string shorter =
      tokens > 1 ? fmt::format(", or set train.sequence to {} or less", tokens - 1) : std::string();
  throw UsageError(
      fmt::format("the {} part has {} tokens, but train.sequence = {} needs at least {}: give more text{}.",
                  part, tokens, sequence, sequence + 1, shorter));
}

}  // namespace

Corpus load_corpus(const CorpusOptions& options) {
  if (options.sequence < 1)
    throw UsageError(fmt::format("train.sequence = {}: must be 1 or more.", options.sequence));
  const std::vector<fs::path> files = list_documents(options.text);
  std::vector<std::string> names;
  for (const fs::path& file : files) names.push_back(file.stem().string());
  const std::set<std::string> held_out = check_held_out(options, names);
  Corpus corpus;
  for (size_t i = 0; i < files.size(); ++i) {
    TokenStream& part = held_out.count(names[i]) ? corpus.held_out : corpus.training;
    append_document(part, names[i], read_document(files[i]));
  }
  check_length(corpus.training, "training", options.sequence);
  if (!held_out.empty()) check_length(corpus.held_out, "held-out", options.sequence);
  return corpus;
}

}  // namespace lockstep::data
