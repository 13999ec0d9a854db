// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The table that a process works with, from its three sources. The edge of this room: it asks for
// the home directory and looks for files; everything else here is pure.
#include <unistd.h>

#include <iterator>

#include "select/table.hpp"

namespace tutti::select {
namespace {

constexpr const char* kUserFile = "/tutti/tuning.json";
constexpr const char* kSystemFile = "/etc/tutti/tuning.json";

/// There, even if unreadable: that is an error to report, not a reason to look elsewhere.
bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

/// The user's file by the XDG base directory specification, which lets relative values not count.
std::string user_file() {
  std::string config_home = environment_value("XDG_CONFIG_HOME");
  if (!config_home.empty() && config_home[0] == '/') {
    return config_home + kUserFile;
  }
  std::string home = environment_value("HOME");
  return home.empty() ? "" : home + "/.config" + kUserFile;
}

std::string variable_of(std::size_t collective) {
  std::string name = "TUTTI_";
  for (const char* c = kCollectiveNames[collective]; *c != '\0'; ++c) {
    name += *c == '_' ? '_' : static_cast<char>(*c - 'a' + 'A');
  }
  return name;
}

void append(std::vector<Rule> from, std::vector<Rule>* to) {
  to->insert(to->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

std::string tuning_file_path(const Config& config) {
  if (!config.tuning_file.empty()) {
    return config.tuning_file;
  }
  std::string user = user_file();
  if (!user.empty() && exists(user)) {
    return user;
  }
  return exists(kSystemFile) ? kSystemFile : "";
}

Result<Table> effective_table(const Config& config) {
  Table table;
  for (std::size_t i = 0; i < config.plans.size(); ++i) {
    if (config.plans[i].empty()) {
      continue;
    }
    TUTTI_ASSIGN_OR_RETURN(
        std::vector<Rule> rules,
        parse_plan_list(static_cast<Collective>(i), config.plans[i], variable_of(i)));
    append(std::move(rules), &table.rules);
  }
  std::string file = tuning_file_path(config);
  if (!file.empty()) {
    TUTTI_ASSIGN_OR_RETURN(Table from_file, load_table(file));
    append(std::move(from_file.rules), &table.rules);
  }
  append(default_table().rules, &table.rules);
  return table;
}

}  // namespace tutti::select
