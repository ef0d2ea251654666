// Uses the extras, where they are installed.
#include <cohort/extras/all.h>

#include <cstdio>

int main() {
  const auto picture = cohort::train::svg_plot({{.title = "loss", .curves = {{"train", {{1, 0.5}, {2, 0.25}}}}}});
  std::printf("%zu bytes\n", picture.size());
  return picture.empty();
}
