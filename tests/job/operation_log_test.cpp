#include "cohort/job/operation_log.h"

#include <gtest/gtest.h>

namespace cohort::job {
namespace {

Operation broadcast(uint64_t sequence, int root) {
  return {.name = "broadcast", .sequence = sequence, .group = "dp", .dtype = "float32", .shape = "[4]", .root = root};
}

TEST(OperationLog, SignatureHoldsWhatMustAgree) {
  EXPECT_EQ(signature(broadcast(1, 2)), "broadcast(root 2, float32 [4])");
  EXPECT_EQ(signature({.name = "all_reduce", .dtype = "int64", .shape = "[]", .reduce_op = "SUM"}),
            "all_reduce(SUM, int64 [])");
  EXPECT_EQ(signature({.name = "barrier"}), "barrier()");
}

TEST(OperationLog, ThePurposeIsSaidButNeedNotAgreeMessage) {
  auto operation = broadcast(1, 0);
  const auto own = signature(operation);
  operation.purpose = "an exchange of buffers";
  const auto of_library = signature(operation);
  EXPECT_EQ(of_library, "broadcast(root 0, float32 [4]), which is an exchange of buffers");
  EXPECT_TRUE(agree(own, of_library));
  EXPECT_FALSE(agree(of_library, "barrier()"));
  EXPECT_FALSE(have_one_purpose(own, of_library));
  EXPECT_TRUE(have_one_purpose(own, "barrier()"));
  EXPECT_EQ(first_difference({"dp", 1, {{1, own}}}, {"dp", 1, {{1, of_library}}}), std::nullopt);
}

TEST(OperationLog, AccountKeepsTheLastCollectivesOnly) {
  OperationLog log;
  for (uint64_t i = 1; i <= 40; ++i) log.add(broadcast(i, 0));
  log.add({.name = "send", .sequence = 7, .point_to_point = true});
  const auto account = log.account(broadcast(40, 0));
  EXPECT_EQ(account.group, "dp");
  EXPECT_EQ(account.sequence, 40u);
  EXPECT_EQ(account.signatures.size(), 16u);
  EXPECT_EQ(account.signatures.begin()->first, 25u);
}

TEST(OperationLog, AccountSurvivesTheStore) {
  OperationLog log;
  log.add(broadcast(1, 0));
  log.add(broadcast(2, 1));
  const auto account = Account::decode(log.account(broadcast(2, 1)).encode());
  EXPECT_EQ(account.group, "dp");
  EXPECT_EQ(account.sequence, 2u);
  EXPECT_EQ(account.signatures.at(2), "broadcast(root 1, float32 [4])");
}

TEST(OperationLog, UnreadableAccountsGiveNothing) {
  EXPECT_TRUE(Account::decode("").signatures.empty());
  EXPECT_TRUE(Account::decode("dp\nx\n" + std::string(100000, 'y')).signatures.empty());
  EXPECT_EQ(Account::decode("dp\nx\nnospace\n").sequence, 0u);
}

TEST(OperationLog, FirstDifferenceAmongTheCommonOnes) {
  Account mine{"dp", 3, {{1, "a"}, {2, "b"}, {3, "c"}}};
  Account theirs{"dp", 4, {{2, "b"}, {3, "x"}, {4, "y"}}};
  EXPECT_EQ(first_difference(mine, theirs), 3u);
  theirs.signatures[3] = "c";
  EXPECT_EQ(first_difference(mine, theirs), std::nullopt);
  theirs.signatures[3] = "x";
  theirs.group = "tp";
  EXPECT_EQ(first_difference(mine, theirs), std::nullopt);
}

}  // namespace
}  // namespace cohort::job
