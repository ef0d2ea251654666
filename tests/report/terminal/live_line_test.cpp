#include "cohort/report/terminal/live_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "cohort/base/file/file.h"
#include "cohort/base/log/log.h"
#include "cohort/base/system/env.h"
#include "cohort/report/records/run_record.h"
#include "cohort/report/terminal/figures.h"
#include "cohort/report/terminal/text_table.h"

namespace cohort::report {
namespace {

// A terminal whose screen is what a program wrote to it.
class Terminal {
 public:
  Terminal() : screen_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    ::grantpt(screen_.get());
    ::unlockpt(screen_.get());
    program_.reset(::open(::ptsname(screen_.get()), O_RDWR | O_NOCTTY));
    struct termios settings {};
    ::tcgetattr(program_.get(), &settings);
    settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // "\n" stays "\n"
    ::tcsetattr(program_.get(), TCSANOW, &settings);
    resize(80);
    base::set_env("TERM", "xterm");
    base::set_env("NO_COLOR", "1");
  }
  int fd() const { return program_.get(); }
  void resize(unsigned short columns) {
    const struct winsize size { 24, columns, 0, 0 };
    ::ioctl(screen_.get(), TIOCSWINSZ, &size);
  }
  // What was written since the last call.
  std::string text() {
    constexpr char kEnd = '\x1e';
    EXPECT_EQ(::write(program_.get(), &kEnd, 1), 1);
    std::string all;
    char buffer[4096];
    struct pollfd readable {
      screen_.get(), POLLIN, 0
    };
    while (!all.ends_with(kEnd)) {
      const ssize_t count =
          ::poll(&readable, 1, kHangMilliseconds) == 1 ? ::read(screen_.get(), buffer, sizeof buffer) : 0;
      if (count <= 0) throw std::runtime_error("the terminal is silent after: " + all);
      all.append(buffer, static_cast<size_t>(count));
    }
    all.pop_back();
    return all;
  }

 private:
  static constexpr int kHangMilliseconds = 20'000;

  base::Fd screen_, program_;
};

const std::string kErase = "\r\x1b[2K";

std::vector<LinePart> parts() { return {{"epoch 1", 0}, {"loss 0.5", 1}, {"100 samples/s", 3}, {"ETA 0:10", 2}}; }

TEST(LiveLine, IsRewrittenInPlace) {
  Terminal terminal;
  {
    LiveLine line(terminal.fd(), LineKind::kAuto);
    ASSERT_TRUE(line.is_terminal());
    line.show({{"one", 0}});
    line.show({{"two", 0}});
    EXPECT_EQ(terminal.text(), kErase + "one" + kErase + "two");
  }
  EXPECT_EQ(terminal.text(), "\n");
}

TEST(LiveLine, IsNeverWiderThanTheTerminal) {
  Terminal terminal;
  LiveLine line(terminal.fd(), LineKind::kAuto);
  const std::pair<unsigned short, const char*> widths[] = {
      {80, "epoch 1  loss 0.5  100 samples/s  ETA 0:10"},
      {43, "epoch 1  loss 0.5  100 samples/s  ETA 0:10"},
      {42, "epoch 1  loss 0.5  ETA 0:10"},
      {27, "epoch 1  loss 0.5"},
      {17, "epoch 1"},
      {6, "epoch"},
  };
  for (const auto& [columns, text] : widths) {
    terminal.resize(columns);
    line.end();
    line.show(parts());
    const std::string written = terminal.text();
    EXPECT_EQ(written.substr(written.rfind("\x1b[2K") + 4), text) << columns;
  }
}

TEST(LiveLine, ErasesTheRowsThatANarrowerTerminalHasMadeOfIt) {
  Terminal terminal;
  LiveLine line(terminal.fd(), LineKind::kAuto);
  line.show(parts());  // 42 columns
  terminal.text();
  terminal.resize(20);
  line.show({{"short", 0}});
  EXPECT_EQ(terminal.text(), "\r\x1b[2A\x1b[Jshort");
}

TEST(LiveLine, TextPassesAboveIt) {
  Terminal terminal;
  LiveLine line(terminal.fd(), LineKind::kAuto);
  line.print("before");
  line.show({{"live", 0}});
  line.print("held-out loss 2.6");
  line.end();
  line.print("after");
  EXPECT_EQ(terminal.text(), "before\n" + kErase + "live" + kErase + "held-out loss 2.6\nlive\nafter\n");
}

// Messages of the library go to stderr: here the same terminal.
class StandardErrorOn {
 public:
  explicit StandardErrorOn(int fd) : saved_(::dup(STDERR_FILENO)) { ::dup2(fd, STDERR_FILENO); }
  ~StandardErrorOn() { ::dup2(saved_.get(), STDERR_FILENO); }

 private:
  base::Fd saved_;
};

TEST(LiveLine, MessagesOfTheLibraryStandAboveIt) {
  Terminal terminal;
  LiveLine line(terminal.fd(), LineKind::kAuto);
  line.show({{"live", 0}});
  {
    const StandardErrorOn here(terminal.fd());
    base::log_warning("slow");
    line.end();
    base::log_warning("late");
  }
  EXPECT_EQ(terminal.text(),
            kErase + "live" + kErase + "[cohort] warning: slow\nlive\n" + kErase + "[cohort] warning: late\n");
}

TEST(LiveLine, MessagesOfAnotherProcessStandAboveTheNextOne) {
  Terminal terminal;
  auto pipe = base::make_pipe().value();
  const pid_t other = ::fork();  // before there is a line, as another rank
  if (other == 0) {
    pipe.write_end.reset();
    char byte = 0;
    static_cast<void>(::read(pipe.read_end.get(), &byte, 1));
    ::dup2(terminal.fd(), STDERR_FILENO);
    base::log_warning("slow");
    ::_exit(0);
  }
  LiveLine line(terminal.fd(), LineKind::kAuto);
  line.show({{"live", 0}});
  pipe.write_end.reset();
  ASSERT_EQ(::waitpid(other, nullptr, 0), other);
  line.show({{"next", 0}});
  EXPECT_EQ(terminal.text(), kErase + "live" + kErase + "[cohort] warning: slow\n" + kErase + "next");
}

TEST(LiveLine, MessagesToElsewhereLeaveItAlone) {
  Terminal terminal;
  LiveLine line(terminal.fd(), LineKind::kAuto);
  line.show({{"live", 0}});
  auto pipe = base::make_pipe().value();
  {
    const StandardErrorOn elsewhere(pipe.write_end.get());
    base::log_warning("slow");
  }
  char buffer[100] = {};
  ASSERT_GT(::read(pipe.read_end.get(), buffer, sizeof buffer - 1), 0);
  EXPECT_STREQ(buffer, "[cohort] warning: slow\n");
  EXPECT_EQ(terminal.text(), kErase + "live");
}

TEST(LiveLine, VanishesWhereItIsErased) {
  Terminal terminal;
  LiveLine line(terminal.fd(), LineKind::kAuto);
  line.show({{"validation", 0}});
  line.erase();
  EXPECT_EQ(terminal.text(), kErase + "validation" + kErase);
}

TEST(LiveLine, IsPlainLinesElsewhere) {
  auto pipe = base::make_pipe().value();
  {
    LiveLine line(pipe.write_end.get(), LineKind::kAuto);
    EXPECT_FALSE(line.is_terminal());
    line.show(parts());
    line.print("text");
    line.erase();
  }
  pipe.write_end.reset();
  char buffer[200] = {};
  ASSERT_GT(::read(pipe.read_end.get(), buffer, sizeof buffer - 1), 0);
  EXPECT_STREQ(buffer, "epoch 1  loss 0.5  100 samples/s  ETA 0:10\ntext\n");
}

TEST(LiveLine, DimsWhatMattersLess) {
  Terminal terminal;
  base::unset_env("NO_COLOR");
  LiveLine line(terminal.fd(), LineKind::kAuto);
  line.show({{"step 1", 0}, {"9 samples/s", 1, true}});
  EXPECT_EQ(terminal.text(), kErase + "step 1\x1b[2m  9 samples/s\x1b[0m");
}

TEST(LineParts, CountsLettersNotBytes) {
  EXPECT_EQ(num_columns("Gr\xc3\xb6\xc3\x9f"
                        "e"),
            5U);
  EXPECT_EQ(first_columns("Gr\xc3\xb6\xc3\x9f"
                          "e",
                          3),
            "Gr\xc3\xb6");
}

TEST(LineParts, WideLettersHaveTwoColumnsAndMarksNone) {
  EXPECT_EQ(num_columns("\xe6\x8d\x9f\xe5\xa4\xb1"), 4U);  // two Chinese letters
  EXPECT_EQ(num_columns("e\xcc\x81"), 1U);                 // an accent of its own
  EXPECT_EQ(first_columns("\xe6\x8d\x9f\xe5\xa4\xb1", 3), "\xe6\x8d\x9f");
  EXPECT_EQ(num_columns("a\xff"), 2U);
}

TEST(LineParts, HoldNothingThatMovesTheCursor) {
  EXPECT_EQ(fitted_line({{"lo\x1b[2Jss\n0.5\x7f", 0}}, 0, false), "lo?[2Jss?0.5?");
}

TEST(LiveLine, ATerminalThatDoesNotKnowItsWidthHas80Columns) {
  Terminal terminal;
  terminal.resize(0);
  base::unset_env("COLUMNS");
  EXPECT_EQ(terminal_columns(terminal.fd()), 80U);
  base::set_env("COLUMNS", "33");
  EXPECT_EQ(terminal_columns(terminal.fd()), 33U);
  base::set_env("COLUMNS", "0");
  EXPECT_EQ(terminal_columns(terminal.fd()), 80U);
  base::unset_env("COLUMNS");
  EXPECT_EQ(terminal_columns(base::make_pipe().value().write_end.get()), 0U);
}

TEST(Figures, ThatAreNoneHaveNoSign) {
  const double none = std::copysign(std::numeric_limits<double>::quiet_NaN(), -1.0);
  EXPECT_EQ(metric_text(none), "nan");
  EXPECT_EQ(number_text(none), "nan");
}

TEST(Figures, AreGroupedByThousands) {
  EXPECT_EQ(grouped_text(999), "999");
  EXPECT_EQ(grouped_text(25557032), "25,557,032");
  EXPECT_EQ(grouped_text(-123456), "-123,456");
}

TEST(TextTable, IsAsWideAsWhatIsInIt) {
  TextTable table;
  table.add_column("name", TextTable::Align::kLeft);
  table.add_column("n");
  table.add_row({"a", "10"});
  table.add_row({"longer"});
  EXPECT_EQ(table.text(), "name     n\n------  --\na       10\nlonger\n");
}

}  // namespace
}  // namespace cohort::report
