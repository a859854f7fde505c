// The split of a folder of documents, and every refusal's advice.
#include "data/corpus.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "observe/temporary_folder.hpp"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::message_of;
using lockstep::testing::read_text;
using lockstep::testing::TemporaryFolder;
using lockstep::testing::write_text;

std::string text_of(const TokenStream& stream) { return ByteTokenizer::decode(stream.tokens); }

TEST(Corpus, SplitsByDocumentInOrderOfName) {
  const TemporaryFolder folder;
  for (const char* name : {"c", "a", "d", "b"})
    write_text(folder / (std::string(name) + ".txt"), std::string(name) + "!\n");
  write_text(folder / "notes.md", "not a document");
  fs::create_directory(folder / "x.txt");  // nor is a folder
  const Corpus corpus = load_corpus({.text = folder.path(), .held_out = {"d", "b.txt"}, .sequence = 4});
  EXPECT_EQ(text_of(corpus.training), "a!\n\nc!\n");
  EXPECT_EQ(text_of(corpus.held_out), "b!\n\nd!\n");
  EXPECT_EQ(corpus.training.documents, (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(corpus.held_out.documents, (std::vector<std::string>{"b", "d"}));
  EXPECT_EQ(corpus.training.document_begins, (std::vector<int64_t>{0, 4}));
}

TEST(Corpus, AllBytesAreKept) {
  const TemporaryFolder folder;
  const std::string bytes("\r\n\0\xFF\xEF\xBB\xBF", 7);
  write_text(folder / "a.txt", bytes);
  write_text(folder / "b.txt", "0123456789");
  EXPECT_EQ(text_of(load_corpus({.text = folder.path(), .held_out = {"a"}, .sequence = 3}).held_out), bytes);
}

TEST(Corpus, EmptyDocumentsKeepTheirBorders) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b", "d"}) write_text(folder / (std::string(name) + ".txt"), "");
  write_text(folder / "c.txt", "xyz");
  const Corpus corpus = load_corpus({.text = folder.path(), .sequence = 2, .need_held_out = false});
  EXPECT_EQ(text_of(corpus.training), "\n\nxyz\n");
  EXPECT_EQ(corpus.training.document_begins, (std::vector<int64_t>{0, 1, 2, 6}));
}

TEST(Corpus, OneFileIsOneDocument) {
  const TemporaryFolder folder;
  write_text(folder / "all.txt", "hello world");
  const Corpus corpus = load_corpus({.text = folder / "all.txt", .sequence = 4, .need_held_out = false});
  EXPECT_EQ(text_of(corpus.training), "hello world");
  EXPECT_TRUE(corpus.held_out.tokens.empty());
  const std::string message =
      message_of<UsageError>([&] { load_corpus({.text = folder / "all.txt", .sequence = 4}); });
  EXPECT_NE(message.find("several .txt files"), message.npos) << message;
}

TEST(Corpus, RefusalsSayWhatToChange) {
  const TemporaryFolder folder;
  const TemporaryFolder empty;
  write_text(folder / "2015_obama.txt", "0123456789");
  write_text(folder / "2016_obama.txt", "0123456789");
  write_text(folder / "words.md", "0123456789");
  struct Case {
    CorpusOptions options;
    const char* says;
  };
  for (const Case& wrong : {
           Case{{.text = folder / "absent", .sequence = 4}, "no such file or folder"},
           Case{{.text = empty.path(), .sequence = 4}, "no .txt file"},
           Case{{.text = folder / "words.md", .sequence = 4}, "neither a folder nor a .txt file"},
           Case{{.text = folder.path(), .held_out = {"2016_obema"}, .sequence = 4},
                "nearest is \"2016_obama\""},
           Case{{.text = folder.path(), .held_out = {"2015_obama", "2015_obama.txt"}, .sequence = 4},
                "given twice"},
           Case{{.text = folder.path(), .sequence = 4}, "such as \"2016_obama\""},
           Case{{.text = folder.path(), .held_out = {"2015_obama", "2016_obama"}, .sequence = 4},
                "leave some"},
           Case{{.text = folder.path(), .held_out = {"2016_obama"}, .sequence = 10},
                "set train.sequence to 9"},
           Case{{.text = folder.path(), .held_out = {"2016_obama"}, .sequence = 0}, "must be 1 or more"},
       }) {
    const std::string message = message_of<UsageError>([&] { load_corpus(wrong.options); });
    EXPECT_NE(message.find(wrong.says), message.npos) << message;
  }
  // The edge of "too short": 10 bytes hold one window of 9 + 1.
  EXPECT_EQ(
      load_corpus({.text = folder.path(), .held_out = {"2016_obama"}, .sequence = 9}).held_out.tokens.size(),
      10u);
}

TEST(Corpus, AnUnreadableDocumentIsNamed) {
  const TemporaryFolder folder;
  write_text(folder / "a.txt", "0123456789");
  write_text(folder / "b.txt", "0123456789");
  // /proc/self/mem opens as a regular file and fails on the first read, for root too.
  fs::create_symlink("/proc/self/mem", folder / "c.txt");
  const std::string message =
      message_of<UsageError>([&] { load_corpus({.text = folder.path(), .held_out = {"a"}, .sequence = 4}); });
  EXPECT_NE(message.find("c.txt"), message.npos) << message;
}

// The bundled text: what data/README.md says about it.
TEST(BundledText, IsAsDescribed) {
  const fs::path folder = fs::path(LOCKSTEP_SOURCE_DIR) / "data/sotu";
  const std::vector<std::string> held_out = {"2015_barack_obama_d", "2016_barack_obama_d"};
  const Corpus corpus = load_corpus({.text = folder, .held_out = held_out, .sequence = 128});
  EXPECT_EQ(corpus.held_out.documents, held_out);
  EXPECT_EQ(corpus.training.documents.size(), 52u);
  EXPECT_EQ(corpus.training.documents.front(), "1961_john_f_kennedy_d");
  EXPECT_EQ(corpus.held_out.tokens.size(), 71'837u + 1);
  EXPECT_EQ(corpus.training.tokens.size(), 1'626'838u + 51);
  for (const std::string& name : corpus.training.documents) {
    const std::string text = read_text(folder / (name + ".txt"));
    EXPECT_EQ(text.find('\r'), text.npos) << name;
    EXPECT_EQ(text.back(), '\n') << name;
  }
}

}  // namespace
}  // namespace lockstep::data
