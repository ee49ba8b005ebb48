/** For tests of programs that use locks: {@link fairlock.testing.FakeLocks}. */
package fairlock.testing;
