/** The implementation: not for use from outside, and free to change. */
package fairlock.internal;
