/** How it is done: not to be used from outside, and free to change. */
package fairlock.internal;
