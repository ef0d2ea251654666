#include <utility>

#include "cohort/files/tensors/elements/shown_text.h"
#include "cohort/files/tensors/plan/save_plan.h"

namespace cohort::files {
namespace {

using base::Error;
using base::Result;

Json message_of(const Region& region) {
  Json dims = Json::array();
  for (const auto& ranges : region) {
    Json flat = Json::array();
    for (const IndexRange& range : ranges) {
      flat.push_back(range.begin);
      flat.push_back(range.end);
    }
    dims.push_back(std::move(flat));
  }
  return dims;
}

Region region_of(const Json& message) {
  Region region;
  for (const Json& flat : message) {
    region.emplace_back();
    for (size_t i = 0; i + 1 < flat.size(); i += 2) {
      region.back().push_back({flat[i].get<int64_t>(), flat[i + 1].get<int64_t>()});
    }
  }
  return region;
}

// Parses a message of a rank, which belongs to the same job and uses the same library.
template <typename Parse>
auto parse_message(std::string_view text, Parse parse) -> Result<decltype(parse(Json()))> {
  try {
    return parse(Json::parse(text));
  } catch (const Json::exception& error) {
    return Error(std::string("a rank's message is malformed: ") + shortened(error.what()));
  }
}

}  // namespace

Result<std::string> format_items(const std::vector<SaveItem>& items) {
  Json list = Json::array();
  for (const SaveItem& item : items) {
    if (item.is_tensor) {
      list.push_back({item.key, static_cast<int>(item.dtype), item.shape, message_of(item.region)});
    } else {
      list.push_back({item.key, item.value});
    }
  }
  try {
    return list.dump();
  } catch (const Json::exception& error) {
    return Error(std::string("a key or value is not UTF-8: ") + shortened(error.what()));
  }
}

Result<std::vector<SaveItem>> parse_items(std::string_view text) {
  return parse_message(text, [](const Json& list) {
    std::vector<SaveItem> items;
    for (const Json& entry : list) {
      SaveItem item{.key = entry.at(0).get<std::string>(), .is_tensor = entry.size() == 4};
      if (item.is_tensor) {
        item.dtype = static_cast<Dtype>(entry[1].get<int>());
        item.shape = entry[2].get<std::vector<int64_t>>();
        item.region = region_of(entry[3]);
      } else {
        item.value = entry.at(1);
      }
      items.push_back(std::move(item));
    }
    return items;
  });
}

std::string format_writes(const SavePlan& plan, size_t rank) {
  Json files = Json::array();
  for (const PlannedFile& file : plan.files) files.push_back(file.name);
  Json writes = Json::array();
  for (const PlannedWrite& write : plan.writes[rank]) writes.push_back({write.item, write.file, write.offset});
  return Json({{"files", std::move(files)}, {"writes", std::move(writes)}}).dump();
}

Result<SavePlan> parse_writes(std::string_view text) {
  return parse_message(text, [](const Json& json) {
    SavePlan plan;
    for (const Json& name : json.at("files")) plan.files.push_back({.name = name.get<std::string>()});
    plan.writes.emplace_back();
    for (const Json& write : json.at("writes")) {
      plan.writes[0].push_back({write.at(0).get<size_t>(), write.at(1).get<size_t>(), write.at(2).get<uint64_t>()});
    }
    return plan;
  });
}

}  // namespace cohort::files
