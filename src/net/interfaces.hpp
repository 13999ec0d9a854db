#pragma once
#include <string>
#include <vector>
#include "base/result.hpp"
#include "net/network.hpp"
namespace tutti::net {
struct InterfaceFilter {
  std::string names;
};
inline Result<InterfaceFilter> parse_filter(const std::string& n, const std::string&) {
  return InterfaceFilter{n};
}
inline Result<std::vector<NetDevice>> find_devices(const InterfaceFilter&, int speed) {
  NetDevice d;
  d.name = "lo";
  d.address = "127.0.0.1";
  d.mtu_bytes = 65536;
  d.speed_mbps = speed;
  d.guid = 1;
  return std::vector<NetDevice>{d};
}
}  // namespace tutti::net
