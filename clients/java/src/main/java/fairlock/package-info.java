/** Fair locks on Redis or Valkey with the fairlock module; {@link fairlock.Locks} is where to start. */
package fairlock;
