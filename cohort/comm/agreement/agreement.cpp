#include "cohort/comm/agreement/agreement.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <map>
#include <utility>

#include "cohort/base/text/text.h"
#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/comm/agreement/text_values.h"
#include "cohort/comm/watch/throw_failure.h"

namespace cohort::comm {
namespace {

constexpr const char* kMissing = "nothing";

// This rank's own facts, and everything it has learned from other ranks.
struct Statement {
  RankFailures failures = {};
  std::string difference = {};
  Facts facts = {}, shared_facts = {};
};

c10::IValue value_of_facts(const Facts& facts) {
  std::vector<std::string> words;
  for (const auto& [name, value] : facts) words.insert(words.end(), {name, value});
  return value_of(words);
}

Facts facts_in(const c10::IValue& value) {
  Facts facts;
  const auto words = texts_of(value);
  for (size_t i = 0; i + 1 < words.size(); i += 2) facts.push_back({words[i], words[i + 1]});
  return facts;
}

c10::IValue value_of_statement(const Statement& statement) {
  return c10::ivalue::Tuple::create({value_of(statement.failures), value_of(std::vector{statement.difference}),
                                     value_of_facts(statement.facts), value_of_facts(statement.shared_facts)});
}

// Throws if the value is not a statement.
Statement statement_in(const c10::IValue& value) {
  TORCH_CHECK_VALUE(value.isTuple() && value.toTupleRef().elements().size() == 4, "not a statement");
  const auto& elements = value.toTupleRef().elements();
  const auto difference = texts_of(elements[1]);
  TORCH_CHECK_VALUE(difference.size() == 1, "not a statement");
  return {failures_of(elements[0]), difference.front(), facts_in(elements[2]), facts_in(elements[3])};
}

// The values of one fact, each with its ranks, in the order in which ranks have stated them.
class Values {
 public:
  void add(const std::string& value, int rank) {
    auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& known) { return known.first == value; });
    if (found == all_.end()) found = all_.insert(all_.end(), {value, {}});
    found->second.push_back(rank);
  }
  bool do_differ() const { return all_.size() > 1; }
  // Returns "A on rank 0, but B on ranks 1 and 2"; after kMostShown values, "but other values on ranks 4 to 9".
  std::string in_words(const Group& group) const {
    std::vector<std::string> texts;
    std::vector<int> others;
    for (const auto& [value, ranks] : all_) {
      std::vector<int> numbers;
      for (const int rank : ranks) numbers.push_back(number_in_job(group, rank));
      if (texts.size() < kMostShown)
        texts.push_back(value + " on " + base::ranks_in_words(numbers));
      else
        others.insert(others.end(), numbers.begin(), numbers.end());
    }
    std::sort(others.begin(), others.end());
    if (!others.empty()) texts.push_back("other values on " + base::ranks_in_words(others));
    return base::join(texts, ", but ");
  }

 private:
  static constexpr size_t kMostShown = 4;

  std::vector<std::pair<std::string, std::vector<int>>> all_;
};

const Fact* fact_at(const Facts& facts, size_t place) { return place < facts.size() ? &facts[place] : nullptr; }

bool are_equal(const Fact* one, const Fact* other) {
  return one && other && one->name == other->name && one->value == other->value;
}

// Returns the first difference among facts that all ranks have and, if all ranks can go on, among facts that only some have.
std::string difference_of_all(const std::vector<Statement>& all, const Group& group, bool are_complete) {
  const auto by_size = [](const auto& one, const auto& other) { return one.facts.size() < other.facts.size(); };
  const auto& most = std::max_element(all.begin(), all.end(), by_size)->facts;
  const auto& least = std::min_element(all.begin(), all.end(), by_size)->facts;
  for (size_t i = 0; i < (are_complete ? most : least).size(); ++i) {
    const Fact* const first = fact_at(all.front().facts, i);
    const bool are_alike = std::all_of(all.begin(), all.end(),
                                       [&](const Statement& each) { return are_equal(fact_at(each.facts, i), first); });
    if (are_alike) continue;
    const auto& name = most[i].name;
    Values values;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const Fact* const fact = fact_at(all[rank].facts, i);
      values.add(fact && fact->name == name ? fact->value : kMissing, static_cast<int>(rank));
    }
    return name + " is " + values.in_words(group);
  }
  return "";
}

std::string difference_of_some(const std::vector<Statement>& all, const Group& group) {
  std::map<std::string, Values> by_name;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (const auto& [name, value] : all[rank].shared_facts) by_name[name].add(value, static_cast<int>(rank));
  }
  for (const auto& [name, values] : by_name) {
    if (values.do_differ()) return name + " is " + values.in_words(group);
  }
  return "";
}

// Exchanges statements within the group and joins them.
Statement exchanged(const Statement& own, const std::string& call, const Group& group) {
  std::vector<Statement> all;
  for (const auto& value : RankExchange(group).all_values(value_of_statement(own))) {
    try {
      all.push_back(statement_in(value));
    } catch (const c10::Error&) {
      const int rank = number_in_job(group, static_cast<int>(all.size()));
      C10_THROW_ERROR(ValueError, c10::str(call, ", as rank ", rank, " exchanges something else here\n",
                                           "  hint: make the same calls in the same order on all ranks"));
    }
  }
  Statement result{.facts = own.facts, .shared_facts = own.shared_facts};
  bool can_all = true;
  for (const auto& of_rank : all) {
    for (const auto& [rank, reason] : of_rank.failures) {
      auto& known = result.failures[rank];  // without a job, several ranks may have one number
      if (known.empty()) known = reason;
      can_all = can_all && reason.empty();
    }
    if (result.difference.empty()) result.difference = of_rank.difference;
  }
  if (result.difference.empty()) result.difference = difference_of_all(all, group, can_all);
  if (result.difference.empty()) result.difference = difference_of_some(all, group);
  return result;
}

}  // namespace

void agree(const Claim& own, const std::vector<Group>& groups, const Group& last) {
  const std::string reason = own.failure ? text_of(own.failure) : "";
  const std::string what = own.function + ": " + own.outcome;
  Statement known{.facts = {{"the function", own.function}}, .shared_facts = own.shared_facts};
  known.facts.insert(known.facts.end(), own.facts.begin(), own.facts.end());
  const auto meet = [&](const Group& group) {
    if (!group || group->getSize() == 1) return;
    if (known.failures.empty()) known.failures.emplace(number_in_job(group, group->getRank()), reason);
    known = exchanged(known, "[cohort] " + what, group);
  };
  for (const auto& group : groups) meet(group);
  if (known.difference.empty()) meet(last);
  if (own.failure && own.throws_own_failure) std::rethrow_exception(own.failure);
  const std::string hint = own.hint.empty() ? "" : "\n  hint: " + own.hint;
  TORCH_CHECK_VALUE(known.difference.empty(), "[cohort] ", what, ", as the ranks differ: ", known.difference, hint);
  auto& failures = known.failures;
  const bool is_everywhere =
      std::all_of(failures.begin(), failures.end(), [&](const auto& entry) { return entry.second == reason; });
  if (own.failure && is_everywhere) std::rethrow_exception(own.failure);
  std::erase_if(failures, [](const auto& entry) { return entry.second.empty(); });
  if (!failures.empty()) throw RankError(what, std::move(failures));
}

int number_in_job(const Group& group, int rank) {
  if (!is_initialized()) return rank;
  try {
    return get_global_rank(group, rank);
  } catch (const c10::Error&) {  // the group is not one of ours
    return rank;
  }
}

std::vector<int> numbers_in_job(const Group& group) {
  std::vector<int> numbers;
  for (int rank = 0; rank < group->getSize(); ++rank) numbers.push_back(number_in_job(group, rank));
  return numbers;
}

}  // namespace cohort::comm
