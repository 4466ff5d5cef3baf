// A publisher by amqp091-go: QUEUE PORT... It prints the number of each message that was confirmed, until it is ended.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	pause    = 20 * time.Millisecond // between two messages and between two tries
	patience = 20 * time.Second      // for a confirm
)

func main() {
	queue, ports := os.Args[1], os.Args[2:]
	for number, turn := 0, 0; ; turn++ {
		number = publish(queue, ports[turn%len(ports)], number)
		time.Sleep(pause)
	}
}

// Publish through one node until that fails. Returns the number of the next message.
func publish(queue, port string, number int) int {
	connection, err := amqp.Dial("amqp://guest:guest@127.0.0.1:" + port + "/")
	if err != nil {
		return number
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil || channel.Confirm(false) != nil {
		return number
	}
	for ; ; number++ {
		message := amqp.Publishing{Body: []byte(strconv.Itoa(number)), DeliveryMode: amqp.Persistent}
		context, cancel := context.WithTimeout(context.Background(), patience)
		confirm, err := channel.PublishWithDeferredConfirmWithContext(context, "", queue, false, false, message)
		isConfirmed := false
		if err == nil {
			isConfirmed, err = confirm.WaitContext(context)
		}
		cancel()
		if err != nil || !isConfirmed {
			return number + 1
		}
		fmt.Println(number)
		time.Sleep(pause)
	}
}
