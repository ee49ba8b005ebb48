package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The version of the format, in the first line of a history.
const format = "fairlock chaos 1"

// A line of a history; README.md says which keys which line has.
type line struct {
	History      string `json:"history"`
	Server       string `json:"server"`
	Suite        string `json:"suite"`
	Seed         uint64 `json:"seed"`
	Milliseconds int64  `json:"milliseconds"`
	Commit       string `json:"commit"`
	Turn         int64  `json:"turn"`
	Scripted     []int  `json:"scripted"`

	Found      string `json:"found"`
	LeftBehind string `json:"left behind"`

	Call  string `json:"call"`
	Fault string `json:"fault"`
	Sight string `json:"sight"`

	// Where it stands in the file, from 1 up.
	number int

	From int64 `json:"from"`
	To   int64 `json:"to"`
	Lock int   `json:"lock"`
	// Of calls, and of faults that hit one client.
	Client *int `json:"client"`

	Attempt uint64 `json:"attempt"`
	Unread  int64  `json:"unread"`
	Way     string `json:"way"`
	Lease   int64  `json:"lease"`
	Session bool   `json:"session"`
	Once    bool   `json:"once"`
	Wait    int64  `json:"wait"`
	Limit   int    `json:"limit"`
	Token   int64  `json:"token"`
	Owner   int    `json:"owner"`
	Answer  string `json:"answer"`
	Got     int64  `json:"got"`
	Holds   int64  `json:"holds"`
	Error   string `json:"error"`

	LostSince *int64 `json:"lost_since"`
	Seconds   int64  `json:"seconds"`
	Key       string `json:"key"`
	Option    string `json:"option"`
	Value     string `json:"value"`

	Holders []int `json:"holders"`
	Queue   []int `json:"queue"`
}

// Everything after the first line, in the order of the file.
type history struct {
	title line
	lines []*line
}

func read(from io.Reader) (*history, error) {
	read := &history{}
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, 1<<20)
	for number := 1; scanner.Scan(); number++ {
		line, err := parse(scanner.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		line.number = number
		if number == 1 {
			read.title = *line
		} else {
			read.lines = append(read.lines, line)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, err
	}
	if read.title.History != format {
		return nil, fmt.Errorf("line 1: no history of the format %q", format)
	}
	return read, nil
}

func parse(text []byte) (*line, error) {
	line := &line{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(line); err != nil {
		return nil, err
	}
	if line.From > line.To {
		return nil, errors.New("it ends before it begins")
	}
	if line.Call != "" && line.Client == nil {
		return nil, errors.New("a call of no client")
	}
	return line, nil
}
