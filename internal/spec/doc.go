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
//	NewMemoryServer    an in-memory server, and what becomes of each request and reply, for tests on fake time
//
// Everything on miniredis runs on fake time, in a bubble of testing/synctest. So a spec may wait for hours, and a busy
// machine does not make it fail.
package spec
