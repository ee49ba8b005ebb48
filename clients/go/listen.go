package fairlock

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand"
	"strconv"
	"strings"
	"time"
)

const restTime = time.Second // for the rest of a message that has begun

// askAndListen waits where the server cannot: it asks when the owner's channel says that it is its turn, and at the
// times that the server gave. The channel has a connection of its own until the wait ends; asks go on the shared one.
func (l *Locks) askAndListen(ctx context.Context, address string, a *ask) (*grant, error) {
	c, err := l.take(ctx, place{listening, address})
	if err != nil {
		return nil, err
	}
	c.isAsked = a.onceAt != ""
	verb, err := l.subscribe(ctx, c, channelOf(a.name, a.owner))
	var got *grant
	for err == nil && got == nil {
		// Asking after the subscription makes up for a wake-up that came before it.
		a.isQueued = false
		if got, err = l.askInOrder(ctx, address, a); got == nil && err == nil {
			err = a.listen(ctx, c)
		}
	}
	go l.unsubscribe(c, verb) // The holder does not wait for that.
	return got, err
}

// listen returns when it is time to ask again.
func (a *ask) listen(ctx context.Context, c *conn) error {
	if a.left() == 0 {
		return a.notInTime()
	}
	// The waiters of one lock must not all ask at the same moment.
	jitter := rand.Int63n(int64(min(a.retryAfter/10, time.Second)) + 1)
	return c.line.listen(ctx, a.shorter(a.retryAfter+time.Duration(jitter)))
}

// subscribe returns the command that it used. In a cluster channels belong to slots, since Redis 7.
func (l *Locks) subscribe(ctx context.Context, c *conn, channel string) (verb string, err error) {
	if l.route.isCluster {
		verb, err = "SSUBSCRIBE", c.converse(ctx, "SSUBSCRIBE", channel)
	}
	if verb == "" || isUnknown(err) {
		verb, err = "SUBSCRIBE", c.converse(ctx, "SUBSCRIBE", channel)
	}
	if err != nil {
		return "", err
	}
	return verb, nil
}

func (l *Locks) unsubscribe(c *conn, verb string) {
	if verb != "" && !c.isClosed() {
		_ = c.converse(context.Background(), strings.Replace(verb, "SUB", "UNSUB", 1))
	}
	l.give(c)
}

// converse sends a command for channels, and skips other messages, such as wake-ups on their way.
func (c *conn) converse(ctx context.Context, words ...string) error {
	defer context.AfterFunc(ctx, c.close)()
	_ = c.socket.SetDeadline(time.Now().Add(c.locks.options.commandTimeout))
	err := c.say(c.isAsked, words)
	for err == nil {
		var heard string
		if heard, err = hear(c.said); strings.EqualFold(heard, words[0]) {
			return nil
		}
	}
	if replied(err) == nil {
		c.close()
	}
	return err
}

func (l *line) say(isAsked bool, words []string) error {
	var all bytes.Buffer
	if isAsked {
		all.WriteString("*1\r\n$6\r\nASKING\r\n")
	}
	fmt.Fprintf(&all, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&all, "$%d\r\n%s\r\n", len(word), word)
	}
	_, err := l.socket.Write(all.Bytes())
	return err
}

// listen returns nil when a message comes, or longest is over; it ends with ctx, and so does the connection then.
func (l *line) listen(ctx context.Context, longest time.Duration) error {
	defer context.AfterFunc(ctx, l.close)()
	_ = l.socket.SetReadDeadline(time.Now().Add(longest))
	if _, err := l.said.Peek(1); isTimeout(err) {
		return nil
	} else if err != nil {
		return err
	}
	_ = l.socket.SetReadDeadline(time.Now().Add(restTime))
	_, err := hear(l.said)
	return err
}

// hear reads one reply of RESP2: what kind of message it is, as "message" or "subscribe".
func hear(from *bufio.Reader) (kind string, err error) {
	text, err := from.ReadString('\n')
	if err == nil && len(text) < 3 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", err
	}
	mark, text := text[0], text[1:len(text)-2]
	length, _ := strconv.Atoi(text)
	switch mark {
	case '-':
		return "", replyError(text)
	case '$':
		if length < 0 {
			return "", nil
		}
		content := make([]byte, length+2)
		_, err = io.ReadFull(from, content)
		return string(content[:length]), err
	case '*':
		for number := 0; number < length && err == nil; number++ {
			var part string
			if part, err = hear(from); number == 0 {
				kind = part
			}
		}
	}
	return kind, err
}
