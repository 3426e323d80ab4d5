// Package spec has what the specs of several packages share: the suites, which run the same specs on miniredis and on
// real servers; the servers and networks that a spec can break; and what a spec counts, records and waits for.
//
// A package that has specs imports it from its external test package, and starts them in its suite_test.go:
//
//	func TestMain(m *testing.M) { spec.Main(m) }
//
//	func TestSpecs(t *testing.T) { spec.Run(t) }
//
// # What a spec runs on
//
//	DescribeOnRedis    one Redis: the same specs on miniredis and on a real server
//	DescribeFaulty     the same, behind a network that the spec can break
//	DescribeQuorum     quorums of 3 and of 5 servers, on miniredis and on real servers
//	StartServer        a real server that only this spec uses
//	NewMemoryServer    an in-memory server behind a faultproxy, for tests on fake time
//
// # How a spec breaks the network
//
// Every network that a spec can break is a proxy of internal/testing/faultproxy. A spec adds Rules, each with an Action for
// the requests that match and for their replies. On a quorum in memory, Quorum.Break sets the rules of a server, and
// Quorum.Heal takes them away. Rules tell clients apart by their numbers: Ours and Theirs.
//
// Everything on miniredis runs on fake time, in a bubble of testing/synctest. So a spec may wait for hours, and a busy
// machine does not make it fail.
package spec
