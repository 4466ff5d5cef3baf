# Net::AMQP over a plain socket: the whole conversation frame by frame. Arguments: host, port. A line for each step.
use strict;
use warnings;
use File::ShareDir;
use IO::Socket::INET;
use Net::AMQP;

my ($host, $port) = @ARGV;
$| = 1;
Net::AMQP::Protocol->load_xml_spec(File::ShareDir::dist_dir('AnyEvent-RabbitMQ') . '/fixed_amqp0-9-1.xml');
my $socket = IO::Socket::INET->new(PeerAddr => $host, PeerPort => $port) or die "no connection: $!";
my ($octets, @frames) = ('');
$SIG{ALRM} = sub { die "nothing came\n" };
alarm 20;

sub say_method {
    my ($channel, $method, %arguments) = @_;
    my $class = "Net::AMQP::Protocol::$method";
    print $socket Net::AMQP::Frame::Method->new(channel => $channel, method_frame => $class->new(%arguments))->to_raw_frame;
    $socket->flush;
}

sub next_frame {
    while (!@frames) {
        sysread($socket, $octets, 65536, length $octets) or die "the broker closed\n";
        @frames = Net::AMQP->parse_raw_frames(\$octets);
    }
    return shift @frames;
}

sub hear {
    my ($method) = @_;
    my $frame = next_frame()->method_frame;
    ref $frame eq "Net::AMQP::Protocol::$method" or die "expected $method, got " . ref($frame) . "\n";
    print "$method\n";
    return $frame;
}

print $socket Net::AMQP::Protocol->header;
$socket->flush;
my $start = hear('Connection::Start');
printf "version %d.%d\n", $start->version_major, $start->version_minor;
say_method(
    0, 'Connection::StartOk',
    client_properties => { product => 'Net::AMQP' }, mechanism => 'AMQPLAIN', locale => 'en_US',
    response => { LOGIN => 'guest', PASSWORD => 'guest' },
);
my $tune = hear('Connection::Tune');
say_method(0, 'Connection::TuneOk', channel_max => $tune->channel_max, frame_max => $tune->frame_max, heartbeat => 0);
say_method(0, 'Connection::Open', virtual_host => '/');
hear('Connection::OpenOk');
say_method(1, 'Channel::Open');
hear('Channel::OpenOk');
say_method(1, 'Queue::Declare', queue => 'net.q', exclusive => 1);
hear('Queue::DeclareOk');
say_method(1, 'Basic::Consume', queue => 'net.q', no_ack => 0, consumer_tag => 'net');
hear('Basic::ConsumeOk');
say_method(1, 'Basic::Publish', exchange => '', routing_key => 'net.q');
print $socket Net::AMQP::Frame::Header->new(
    channel => 1, weight => 0, body_size => 4,
    header_frame => Net::AMQP::Protocol::Basic::ContentHeader->new(content_type => 'text/plain', headers => {}),
)->to_raw_frame;
print $socket Net::AMQP::Frame::Body->new(channel => 1, payload => 'body')->to_raw_frame;
$socket->flush;
my $delivery = hear('Basic::Deliver');
print 'type ', next_frame()->header_frame->content_type, "\n";
print 'got ', next_frame()->payload, "\n";
say_method(1, 'Basic::Ack', delivery_tag => $delivery->delivery_tag);
say_method(0, 'Connection::Close', reply_code => 200, reply_text => 'bye', class_id => 0, method_id => 0);
hear('Connection::CloseOk');
