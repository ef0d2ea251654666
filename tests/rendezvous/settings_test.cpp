#include "cohort/rendezvous/environment/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::rendezvous {
namespace {

using namespace std::chrono_literals;
using Backend = Settings::Backend;

Flags c10d(const std::string& endpoint, const std::string& conf = "") {
  Flags flags;
  flags.backend = "c10d";
  flags.endpoint = endpoint;
  flags.conf = conf;
  return flags;
}

std::string error_of(const Flags& flags) {
  const auto settings = parse_settings(flags);
  return settings ? "none" : settings.error().describe();
}

TEST(RendezvousSettings, OneNodeWithoutMoreStandsAlone) {
  const auto settings = parse_settings({}).value();
  EXPECT_EQ(settings.backend, Backend::kStandalone);
  EXPECT_THAT(settings.run_id,
              testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_NE(settings.run_id, parse_settings({}).value().run_id);
}

TEST(RendezvousSettings, StandaloneOverridesTheOtherFlags) {
  auto flags = c10d("node0:1");
  flags.standalone = true;
  flags.run_id = "mine";
  const auto settings = parse_settings(flags).value();
  EXPECT_EQ(settings.backend, Backend::kStandalone);
  EXPECT_NE(settings.run_id, "mine");
}

TEST(RendezvousSettings, StandaloneOfSeveralNodesMessage) {
  Flags flags;
  flags.standalone = true;
  flags.num_nodes = "2";
  EXPECT_EQ(error_of(flags), "--nnodes=\"2\" asks for more than the one node of --standalone");
}

TEST(RendezvousSettings, APortMakesOneStaticNodeARendezvous) {
  Flags flags;
  flags.master_port = 1234;
  const auto settings = parse_settings(flags).value();
  EXPECT_EQ(settings.backend, Backend::kStatic);
  EXPECT_EQ(settings.host, "127.0.0.1");
  EXPECT_EQ(settings.port, 1234);
  EXPECT_EQ(settings.run_id, "none");
}

TEST(RendezvousSettings, StaticTakesTheMasterAddressAndAllNodes) {
  Flags flags;
  flags.num_nodes = "1:4";
  flags.master_address = "node0";
  flags.node_rank = 3;
  const auto settings = parse_settings(flags).value();
  EXPECT_EQ(settings.host, "node0");
  EXPECT_EQ(settings.port, 29500);
  EXPECT_EQ(settings.min_nodes, 4);
  EXPECT_EQ(settings.node_rank, 3);
  EXPECT_FALSE(settings.ignores_node_rank);
}

TEST(RendezvousSettings, StaticPrefersTheEndpoint) {
  Flags flags;
  flags.num_nodes = "2";
  flags.endpoint = "node9:77";
  EXPECT_EQ(parse_settings(flags).value().host, "node9");
  EXPECT_EQ(parse_settings(flags).value().port, 77);
}

TEST(RendezvousSettings, NodeRankMessage) {
  Flags flags;
  flags.num_nodes = "2";
  flags.node_rank = 2;
  EXPECT_EQ(error_of(flags), "--node-rank=2 is not below --nnodes=2");
}

TEST(RendezvousSettings, NodeRankIsIgnoredByADynamicBackend) {
  auto flags = c10d("node0");
  flags.node_rank = 1;
  const auto settings = parse_settings(flags).value();
  EXPECT_TRUE(settings.ignores_node_rank);
  EXPECT_TRUE(settings.is_other_node);
}

TEST(RendezvousSettings, NumbersOfNodes) {
  auto flags = c10d("node0");
  flags.num_nodes = "2:5";
  EXPECT_EQ(parse_settings(flags).value().min_nodes, 2);
  EXPECT_EQ(parse_settings(flags).value().max_nodes, 5);
  for (const auto* text : {"", "0", "2:1", "x", "1:", ":2", "1:2:3", "-1", "99999999"}) {
    flags.num_nodes = text;
    EXPECT_EQ(error_of(flags),
              std::string("--nnodes=\"") + text + "\" is neither a number of nodes nor MIN:MAX with 1 <= MIN <= MAX");
  }
}

TEST(RendezvousSettings, Endpoints) {
  struct Case {
    const char *endpoint, *host;
    int port;
  };
  const Case cases[] = {{"node0", "node0", 29400},       {"node0:80", "node0", 80},     {"", "localhost", 29400},
                        {" 10.0.0.1:0 ", "10.0.0.1", 0}, {"[fd00::1]:7", "fd00::1", 7}, {"[fd00::1]", "fd00::1", 29400},
                        {"fd00::1", "fd00::1", 29400},   {"::1", "::1", 29400}};
  for (const auto& [endpoint, host, port] : cases) {
    const auto settings = parse_settings(c10d(endpoint));
    ASSERT_TRUE(settings) << endpoint;
    EXPECT_EQ(settings->host, host) << endpoint;
    EXPECT_EQ(settings->port, port) << endpoint;
  }
}

TEST(RendezvousSettings, EndpointMessages) {
  EXPECT_EQ(error_of(c10d("node0:http")),
            "--rdzv-endpoint=\"node0:http\" has the port \"http\", which is not a number from 0 to 65535");
  EXPECT_EQ(error_of(c10d("node0:65536")),
            "--rdzv-endpoint=\"node0:65536\" has the port \"65536\", which is not a number from 0 to 65535");
  EXPECT_EQ(error_of(c10d(":80")), "--rdzv-endpoint=\":80\" is not HOST, HOST:PORT or [IPV6]:PORT");
  EXPECT_EQ(error_of(c10d(":::::")), "--rdzv-endpoint=\":::::\" is not HOST, HOST:PORT or [IPV6]:PORT");
  EXPECT_EQ(error_of(c10d("[fe80]:80x:1")), "--rdzv-endpoint=\"[fe80]:80x:1\" is not HOST, HOST:PORT or [IPV6]:PORT");
  EXPECT_EQ(error_of(c10d("a b:80")), "--rdzv-endpoint=\"a b:80\" is not HOST, HOST:PORT or [IPV6]:PORT");
  EXPECT_EQ(error_of(c10d(" ")), "--rdzv-endpoint=\" \" is not HOST, HOST:PORT or [IPV6]:PORT");
}

TEST(RendezvousSettings, PortZeroIsForOneNode) {
  auto flags = c10d("node0:0");
  EXPECT_TRUE(parse_settings(flags));
  flags.num_nodes = "1:2";
  EXPECT_EQ(error_of(flags),
            "--rdzv-endpoint=\"node0:0\" has port 0, and only the node that hosts it would know which port was chosen");
}

TEST(RendezvousSettings, BackendMessage) {
  auto flags = c10d("");
  flags.backend = "c10";
  EXPECT_EQ(error_of(flags),
            "--rdzv-backend has no \"c10\" (did you mean \"c10d\"?)\n  hint: choose one of static, c10d, etcd, "
            "etcd-v2, file");
}

TEST(RendezvousSettings, ConfIsTaken) {
  const auto settings =
      parse_settings(
          c10d("node0",
               "join_timeout=7, last_call_timeout=0.5,close_timeout=3,keep_alive_interval=2,keep_alive_max_attempt=4,"
               "read_timeout=9,is_host=true,stable_ranks=1,ip_family=6,bind=10.0.0.1,token_file=/t"))
          .value();
  EXPECT_EQ(settings.join_timeout, 7s);
  EXPECT_EQ(settings.last_call_timeout, 500ms);
  EXPECT_EQ(settings.close_timeout, 3s);
  EXPECT_EQ(settings.lost_after(), 8s);
  EXPECT_EQ(settings.read_timeout, 9s);
  EXPECT_EQ(settings.is_host, true);
  EXPECT_TRUE(settings.stable_ranks);
  EXPECT_EQ(settings.family, base::IpFamily::kV6);
  EXPECT_EQ(settings.bind, "10.0.0.1");
  EXPECT_EQ(settings.token_file, "/t");
}

TEST(RendezvousSettings, DefaultsAreTorchruns) {
  const auto settings = parse_settings(c10d("node0")).value();
  EXPECT_EQ(settings.join_timeout, 600s);
  EXPECT_EQ(settings.last_call_timeout, 30s);
  EXPECT_EQ(settings.close_timeout, 30s);
  EXPECT_EQ(settings.keep_alive_interval, 5s);
  EXPECT_EQ(settings.keep_alive_max_attempt, 3);
  EXPECT_EQ(settings.read_timeout, 60s);
}

TEST(RendezvousSettings, TimeoutCountsWhereTorchrunLooksAtIt) {
  const auto with = [](const std::string& backend, const std::string& conf) {
    Flags flags;
    flags.num_nodes = "2";
    flags.backend = backend;
    flags.endpoint = "node0";
    flags.conf = conf;
    return parse_settings(flags).value();
  };
  for (const char* backend : {"static", "etcd"}) {
    EXPECT_EQ(with(backend, "timeout=5").join_timeout, 5s) << backend;
    EXPECT_EQ(with(backend, "timeout=5,join_timeout=7").join_timeout, 5s) << backend;
    EXPECT_TRUE(with(backend, "timeout=5").warnings.empty()) << backend;
  }
  for (const std::string backend : {"c10d", "etcd-v2", "file"}) {
    EXPECT_EQ(with(backend, "timeout=5").join_timeout, 600s) << backend;
    EXPECT_EQ(with(backend, "join_timeout=7,timeout=5").join_timeout, 7s) << backend;
    EXPECT_EQ(with(backend, "timeout=5").warnings,
              std::vector<std::string>{"--rdzv-conf timeout is ignored with --rdzv-backend=" + backend +
                                       ", as by torchrun; join_timeout says how long a node waits"});
  }
}

TEST(RendezvousSettings, UnknownOptionsAndQuotesAreWarningsMessage) {
  const auto unknown = parse_settings(c10d("node0", "joint_timeout=7,join_timeout=8")).value();
  EXPECT_EQ(unknown.join_timeout, 8s);
  ASSERT_EQ(unknown.warnings.size(), 1u);
  EXPECT_TRUE(
      unknown.warnings[0].starts_with("--rdzv-conf has no option \"joint_timeout\" (did you mean \"join_timeout\"?); "
                                      "it is ignored. There are join_timeout, "))
      << unknown.warnings[0];
  for (const char* text : {"'join_timeout=5'", "\"join_timeout=5\"", "join_timeout='5'", "join_timeout=\"5\""}) {
    const auto quoted = parse_settings(c10d("node0", text)).value();
    EXPECT_EQ(quoted.join_timeout, 5s) << text;
    EXPECT_EQ(quoted.warnings,
              std::vector<std::string>{"--rdzv-conf=" + std::string(text) +
                                       " has quotes in it, as a YAML file may leave them; they are ignored"});
  }
  EXPECT_TRUE(parse_settings(c10d("node0", "join_timeout=5")).value().warnings.empty());
}

TEST(RendezvousSettings, ConfMessages) {
  EXPECT_EQ(error_of(c10d("", "join_timeout")), "--rdzv-conf=\"join_timeout\" is not a list NAME=VALUE,NAME=VALUE");
  EXPECT_EQ(error_of(c10d("", "join_timeout=")), "--rdzv-conf=\"join_timeout=\" is not a list NAME=VALUE,NAME=VALUE");
  EXPECT_EQ(error_of(c10d("", "join_timeout=0")), "--rdzv-conf join_timeout=0 is not a number of seconds above 0");
  EXPECT_EQ(error_of(c10d("", "keep_alive_max_attempt=0")),
            "--rdzv-conf keep_alive_max_attempt=0 is not a number from 1 to 1000");
  EXPECT_EQ(error_of(c10d("", "is_host=maybe")), "--rdzv-conf is_host=maybe is not true or false");
  EXPECT_EQ(error_of(c10d("", "ip_family=5")), "--rdzv-conf ip_family=5 is not 4 or 6");
}

TEST(RendezvousSettings, AFileBySettingOrBackend) {
  EXPECT_EQ(parse_settings(c10d("/shared/meet", "store_type=file")).value().path, "/shared/meet");
  auto flags = c10d("/shared/meet");
  flags.backend = "file";
  EXPECT_EQ(parse_settings(flags).value().backend, Backend::kFile);
  flags.endpoint = "";
  EXPECT_EQ(
      error_of(flags),
      "--rdzv-backend=file needs a file\n  hint: give --rdzv-endpoint=PATH, a file in a folder that all nodes share");
}

TEST(RendezvousSettings, EtcdHasItsOwnPort) {
  auto flags = c10d("etcd0");
  flags.backend = "etcd-v2";
  EXPECT_EQ(parse_settings(flags).value().backend, Backend::kEtcd);
  EXPECT_EQ(parse_settings(flags).value().port, 2379);
}

Flags etcd(const std::string& endpoint, const std::string& conf = "") {
  auto flags = c10d(endpoint, conf);
  flags.backend = "etcd";
  return flags;
}

TEST(RendezvousSettings, EtcdSpeaksTlsWithTorchrunsNames) {
  EXPECT_FALSE(parse_settings(etcd("etcd0"))->is_https.value_or(false));
  for (const auto* conf : {"protocol=https,cacert=/ca,cert=/cert,key=/key",
                           "ssl_cert_key=/key,ssl_cert=/cert,ca_cert=/ca,protocol=https"}) {
    const auto settings = parse_settings(etcd("etcd0", conf)).value();
    EXPECT_TRUE(settings.is_https.value());
    EXPECT_EQ(settings.tls.ca_file, "/ca");
    EXPECT_EQ(settings.tls.certificate_file, "/cert");
    EXPECT_EQ(settings.tls.key_file, "/key");
  }
}

TEST(RendezvousSettings, AnEndpointOfEtcdMayBeAUrl) {
  const auto settings = parse_settings(etcd("https://etcd0:99/", "cacert=/ca")).value();
  EXPECT_EQ(settings.host, "etcd0");
  EXPECT_EQ(settings.port, 99);
  EXPECT_TRUE(settings.is_https.value());
  EXPECT_EQ(parse_settings(etcd("https://[fd00::1]"))->host, "fd00::1");
  EXPECT_FALSE(parse_settings(etcd("http://etcd0"))->is_https.value());
  EXPECT_EQ(error_of(etcd("https://etcd0", "protocol=http")),
            "--rdzv-endpoint=\"https://etcd0\" contradicts the protocol of --rdzv-conf");
  EXPECT_EQ(error_of(etcd("http://etcd0", "protocol=https")),
            "--rdzv-endpoint=\"http://etcd0\" contradicts the protocol of --rdzv-conf");
}

TEST(RendezvousSettings, TlsThatWouldNotBeUsedMessage) {
  EXPECT_EQ(error_of(etcd("", "protocol=ftp")), "--rdzv-conf protocol=ftp is not http or https");
  EXPECT_EQ(error_of(etcd("", "cacert=/ca")), "--rdzv-conf cacert, cert and key have no effect without protocol=https");
  EXPECT_EQ(error_of(etcd("", "protocol=https,key=/key")),
            "--rdzv-conf has a key, but no certificate for it\n  hint: give cert=FILE, too");
  EXPECT_EQ(error_of(c10d("", "protocol=https")),
            "--rdzv-conf protocol=https, cacert, cert and key need --rdzv-backend=etcd: no other backend supports TLS");
}

}  // namespace
}  // namespace cohort::rendezvous
