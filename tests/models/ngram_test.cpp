#include "examples/gpt/ngram.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>

namespace gpt {
namespace {

// The formula of the header, word by word.
double reference_probability(const std::string& fitted, const std::string& context, char byte) {
  double shorter = 1.0 / 256.0;
  if (!context.empty()) shorter = reference_probability(fitted, context.substr(1), byte);
  double count = 0, total = 0;
  std::set<char> kinds;
  for (size_t i = context.size(); i < fitted.size(); ++i) {
    if (fitted.compare(i - context.size(), context.size(), context) != 0) continue;
    ++total;
    kinds.insert(fitted[i]);
    count += fitted[i] == byte;
  }
  if (total == 0) return shorter;
  return (count + static_cast<double>(kinds.size()) * shorter) / (total + static_cast<double>(kinds.size()));
}

std::string random_text(size_t length, int num_letters, unsigned seed) {
  std::mt19937 random(seed);
  std::string text;
  for (size_t i = 0; i < length; ++i) text += static_cast<char>(random() % num_letters + (i % 7 == 0 ? 250 : 97));
  return text;
}

TEST(Ngram, FollowsItsFormula) {
  const std::string fitted = random_text(300, 4, 1), text = random_text(60, 5, 2);
  for (int order = 1; order <= 4; ++order) {
    NgramModel model(order);
    model.fit(fitted);
    for (size_t i = 0; i < text.size(); ++i) {
      const size_t length = std::min<size_t>(i, order - 1);
      EXPECT_NEAR(model.probability(text, i), reference_probability(fitted, text.substr(i - length, length), text[i]),
                  1e-12);
    }
  }
}

TEST(Ngram, ProbabilitiesOfAllBytesSumToOne) {
  NgramModel model(3);
  model.fit(random_text(500, 3, 3));
  for (const std::string context : {"ab", "zz", "aa", "b"}) {
    double sum = 0.0;
    for (int byte = 0; byte < 256; ++byte) {
      sum += model.probability(context + static_cast<char>(byte), context.size());
    }
    EXPECT_NEAR(sum, 1.0, 1e-9) << context;
  }
}

TEST(Ngram, ContextsEndWithTheirText) {
  NgramModel together(2), apart(2);
  together.fit("abab");
  apart.fit("ab");
  apart.fit("ab");
  EXPECT_GT(together.probability("ba", 1), apart.probability("ba", 1));
  EXPECT_EQ(apart.probability("ba", 1), reference_probability("abXab", "", 'a') * 0 + apart.probability("a", 0));
}

TEST(Ngram, LossSumsOverTheRangeWithTheBytesBeforeIt) {
  NgramModel model(3);
  const std::string text = random_text(100, 3, 4);
  model.fit(random_text(400, 3, 5));
  double expected = 0.0;
  for (size_t i = 10; i < 50; ++i) expected -= std::log(model.probability(text, i));
  EXPECT_NEAR(model.loss(text, 10, 50), expected, 1e-9);
  EXPECT_EQ(model.loss(text, 50, 50), 0.0);
}

TEST(Ngram, UnfittedModelIsUniform) {
  const NgramModel model(4);
  EXPECT_NEAR(model.loss("hello", 0, 5), 5 * std::log(256.0), 1e-9);
}

TEST(Ngram, OrderMessage) {
  for (const int order : {0, 7}) {
    try {
      NgramModel model(order);
      FAIL() << "no error";
    } catch (const c10::ValueError& error) {
      EXPECT_EQ(std::string(error.what_without_backtrace()),
                "NgramModel: order must be from 1 to 6, got " + std::to_string(order));
    }
  }
}

}  // namespace
}  // namespace gpt
