// Package deploy holds what is put around a relay in production, and the tests of it.
package deploy
