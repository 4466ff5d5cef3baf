// Package leverettest is a client of `leveret test-server`, for tests in Go. One file without dependencies: copy it, or
// `leveret test-server --client go > leverettest/leverettest.go`. docs/test-server.md describes the operations.
package leverettest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
)

// Args are the arguments of an operation, and the properties of what it returns.
type Args = map[string]any

// NotSo is a failed assertion of the broker, with the reason.
type NotSo struct{ Text string }

func (e *NotSo) Error() string { return e.Text }

// Broker is a test broker, or one virtual host of it.
type Broker struct {
	URL     string // for AMQP clients
	Control string
	Token   string
	Vhost   string // "": the whole broker

	process *exec.Cmd
	stdin   io.Closer
}

// Start starts a test broker, which ends with this process, with arguments of `leveret test-server`. The command is
// LEVERET from the environment, or `leveret`. If LEVERET_TEST_CONTROL is set, the broker at that URL is used.
func Start(args ...string) (*Broker, error) {
	if control := os.Getenv("LEVERET_TEST_CONTROL"); control != "" {
		broker := &Broker{Control: control, Token: os.Getenv("LEVERET_TEST_TOKEN")}
		var info struct{ URL string }
		err := broker.Call("info", nil, &info)
		broker.URL = info.URL
		return broker, err
	}
	program := os.Getenv("LEVERET")
	if program == "" {
		program = "leveret"
	}
	command := exec.Command(program, append([]string{"test-server", "--with-parent"}, args...)...)
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s test-server ended", program), command.Wait())
	}
	broker := &Broker{process: command, stdin: stdin}
	return broker, json.Unmarshal(line, broker)
}

// Call calls any operation and reads its result into a pointer, if that is not nil.
// The error is a *NotSo for a failed assertion.
func (b *Broker) Call(operation string, args Args, result any) error {
	if args == nil {
		args = Args{}
	}
	body, err := json.Marshal(args)
	if err != nil {
		return err
	}
	request, err := http.NewRequest("POST", b.Control+"/v1/"+operation, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+b.Token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var content struct {
		Result json.RawMessage
		Error  string
	}
	if err := json.NewDecoder(answer.Body).Decode(&content); err != nil {
		return err
	}
	switch {
	case answer.StatusCode == http.StatusExpectationFailed:
		return &NotSo{content.Error}
	case answer.StatusCode != http.StatusOK:
		return errors.New(content.Error)
	case result == nil:
		return nil
	}
	return json.Unmarshal(content.Result, result)
}

// NewVhost creates a virtual host, for tests that run at the same time. An empty name stands for a free one.
func (b *Broker) NewVhost(name string) (*Broker, error) {
	args := Args{}
	if name != "" {
		args["name"] = name
	}
	var made struct{ Name, URL string }
	err := b.Call("vhosts.create", args, &made)
	return &Broker{URL: made.URL, Control: b.Control, Token: b.Token, Vhost: made.Name}, err
}

// Reset resets this virtual host, or the whole broker.
func (b *Broker) Reset() error { return b.Call("reset", b.here(nil), nil) }

// Message is a published message.
type Message struct {
	Exchange   string
	RoutingKey string `json:"routing_key"`
	Body       any    // text, or {"base64": ...}
	Properties Args
	Queues     []string
}

// Published returns the published messages, oldest first: of an exchange and a routing key if args have them.
func (b *Broker) Published(args Args) (messages []Message, err error) {
	return messages, b.Call("published", b.here(args), &messages)
}

// AssertPublished fails unless a message like args was published.
func (b *Broker) AssertPublished(args Args) error { return b.Call("assert_published", b.here(args), nil) }

// AssertNotPublished fails if a message like args was published.
func (b *Broker) AssertNotPublished(args Args) error {
	return b.Call("assert_not_published", b.here(args), nil)
}

// AssertQueue fails unless a queue has the messages in args.
func (b *Broker) AssertQueue(name string, args Args) error {
	return b.Call("assert_queue", b.here(with(args, "name", name)), nil)
}

// Settled waits until no message is ready, unacknowledged or scheduled.
func (b *Broker) Settled() error { return b.Call("settled", b.here(nil), nil) }

// Advance advances virtual time: Args{"hours": 2}.
func (b *Broker) Advance(time Args) error { return b.Call("clock.advance", time, nil) }

// Fault starts a fault, which ends when stop is called.
func (b *Broker) Fault(fault string, args Args) (stop func() error, err error) {
	var started struct{ ID int }
	err = b.Call("faults.start", b.here(with(args, "fault", fault)), &started)
	return func() error { return b.Call("faults.stop", Args{"id": started.ID}, nil) }, err
}

// Close deletes this virtual host, or ends the broker that Start started.
func (b *Broker) Close() error {
	if b.Vhost != "" {
		return b.Call("vhosts.delete", Args{"name": b.Vhost}, nil)
	}
	if b.process == nil {
		return nil
	}
	return errors.Join(b.stdin.Close(), b.process.Wait())
}

func (b *Broker) here(args Args) Args {
	if b.Vhost == "" || args["vhost"] != nil {
		return args
	}
	return with(args, "vhost", b.Vhost)
}

func with(args Args, key string, value any) Args {
	all := Args{key: value}
	for name, each := range args {
		all[name] = each
	}
	return all
}
