// Package test holds the tests of whole relays on real servers. Each case of the kind TestCnn_... is a fault from public
// bug reports of software of this kind.
package test
